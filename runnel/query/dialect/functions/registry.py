"""Register the functions that DuckDB can answer exactly as Spark does: each name has one rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.declare.model.column_types import SparkType
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, format_call_name

if TYPE_CHECKING:
    from runnel.query.dialect.special_forms import SpecialFormTranslator


@dataclass(frozen=True)
class FunctionCall:
    """A function call: its name in lower case, its arguments as sqlglot nodes, and the scope it stands in.

    `distinct`, `where` (a FILTER clause) and `over` (an OVER clause) belong to aggregates.
    """

    name: str
    argument_nodes: tuple[exp.Expr, ...]
    scope: QueryScope
    translator: "SpecialFormTranslator"
    distinct: bool = False
    where: str = ""
    over: str = ""
    ordered: bool = False
    framed: bool = False

    def translate_arguments(self, least: int, most: int | None = None) -> list[TypedExpression]:
        """Translate the arguments; raise if there are fewer than `least` or more than `most`."""
        if not least <= len(self.argument_nodes) <= (least if most is None else most):
            raise Untranslatable(f"{self.name} with {len(self.argument_nodes)} arguments")
        return [self.translator.translate(node, self.scope) for node in self.argument_nodes]

    def result(
        self, sql: str, to: SparkType, *arguments: TypedExpression | str, name: str | None = None
    ) -> TypedExpression:
        """Return the translated call, named as Spark names it: the function and its arguments."""
        return TypedExpression(sql, to, format_call_name(name or self.name, *arguments))


Rule = Callable[[FunctionCall], TypedExpression]
SCALAR_FUNCTIONS: dict[str, Rule] = {}
AGGREGATE_FUNCTIONS: dict[str, Rule] = {}
WINDOW_FUNCTIONS: dict[str, Rule] = {}


def rule(*names: str, table: dict[str, Rule] = SCALAR_FUNCTIONS) -> Callable[[Rule], Rule]:
    """Register a rule under its function names."""

    def register(function: Rule) -> Rule:
        for name in names:
            table[name] = function
        return function

    return register


def require_int_literal(value: TypedExpression, what: str) -> int:
    """Return the value of an integer literal; raise if it is none."""
    if not isinstance(value.literal, int) or isinstance(value.literal, bool):
        raise Untranslatable(f"{what} that is not a literal")
    return value.literal


def require_string_literal(value: TypedExpression, what: str) -> str:
    """Return the value of a string literal; raise if it is none."""
    if not isinstance(value.literal, str) or value.type.kind != "string":
        raise Untranslatable(f"{what} that is not a literal")
    return value.literal


def require_kind(value: TypedExpression, *kinds: str) -> str:
    """Return the DuckDB SQL of a value; raise if its type is not one of `kinds`."""
    if value.type.kind not in kinds:
        raise Untranslatable(f"an argument of type {value.type}")
    return value.sql
