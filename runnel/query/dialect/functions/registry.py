"""The table of functions with a faithful form: each name has one rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.query.data_types import DataType
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.typed_expression import Refused, Value, call_name

if TYPE_CHECKING:
    from runnel.query.dialect.special_forms import Forms


@dataclass(frozen=True)
class Call:
    """A call of a function: its name in lower case, its arguments as written, and where it stands.

    `distinct`, `where` (a FILTER clause) and `over` (an OVER clause) belong to aggregates.
    """

    name: str
    nodes: tuple[exp.Expr, ...]
    scope: Scope
    expressions: "Forms"
    distinct: bool = False
    where: str = ""
    over: str = ""
    ordered: bool = False
    framed: bool = False

    def values(self, least: int, most: int | None = None) -> list[Value]:
        """Return the translated arguments, refusing another number of them."""
        if not least <= len(self.nodes) <= (least if most is None else most):
            raise Refused(f"{self.name} with {len(self.nodes)} arguments")
        return [self.expressions.value(node, self.scope) for node in self.nodes]

    def result(self, sql: str, to: DataType, *arguments: Value | str, name: str | None = None) -> Value:
        """Return the value of this call, named as Spark does: the function and its arguments."""
        return Value(sql, to, call_name(name or self.name, *arguments))


Rule = Callable[[Call], Value]
SCALARS: dict[str, Rule] = {}
AGGREGATES: dict[str, Rule] = {}
WINDOWED: dict[str, Rule] = {}


def rule(*names: str, table: dict[str, Rule] = SCALARS) -> Callable[[Rule], Rule]:
    """Put a rule under its names."""

    def put(function: Rule) -> Rule:
        for name in names:
            table[name] = function
        return function

    return put


def literal_int(value: Value, what: str) -> int:
    """Return the value of a whole number literal."""
    if not isinstance(value.literal, int) or isinstance(value.literal, bool):
        raise Refused(f"{what} that is not a literal")
    return value.literal


def literal_text(value: Value, what: str) -> str:
    """Return the value of a string literal."""
    if not isinstance(value.literal, str) or value.type.kind != "string":
        raise Refused(f"{what} that is not a literal")
    return value.literal


def want(value: Value, *kinds: str) -> str:
    """Return the value's form, refusing other types."""
    if value.type.kind not in kinds:
        raise Refused(f"a {value.type} here")
    return value.sql
