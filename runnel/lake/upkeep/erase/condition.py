"""Parse the condition of an erasure, a small and safe subset of Spark SQL, and render it for DuckDB.

Allowed are comparisons of columns with literals or columns, and, or, not, in, between, like, is null. Everything else
is refused: a condition that removes data for ever must mean the same in every engine. Reads no table and runs nothing.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal, to_duckdb_type
from runnel.names import quote_value

RULE = "compare columns with literals: =, <>, <, <=, >, >=, <=>, in, between, like, is null, joined by and, or, not"
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
}
_TYPE_CLASSES: dict[type[IcebergType], str] = {
    IntegerType: "number",
    LongType: "number",
    FloatType: "number",
    DoubleType: "number",
    DecimalType: "number",
    StringType: "string",
    DateType: "time",
    TimestampType: "time",
    TimestamptzType: "time",
    BooleanType: "boolean",
    UUIDType: "uuid",
}
_CASTS = {
    "TINYINT": ("number", "TINYINT"),
    "SMALLINT": ("number", "SMALLINT"),
    "INT": ("number", "INTEGER"),
    "BIGINT": ("number", "BIGINT"),
    "DOUBLE": ("number", "DOUBLE"),
    "DECIMAL": ("number", "DECIMAL"),
    "TEXT": ("string", "VARCHAR"),
    "VARCHAR": ("string", "VARCHAR"),
    "DATE": ("time", "DATE"),
    "TIMESTAMP": ("time", "TIMESTAMPTZ"),
    "TIMESTAMPTZ": ("time", "TIMESTAMPTZ"),
    "TIMESTAMPLTZ": ("time", "TIMESTAMPTZ"),
    "TIMESTAMPNTZ": ("time", "TIMESTAMP"),
}
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?\Z|\.\d+\Z", re.ASCII)
_TIME = re.compile(
    r"\d{4}-\d\d?-\d\d?(?P<clock>[ T]\d\d?:\d\d(:\d\d(\.\d{1,6})?)?(?P<zone>Z|[+-]\d\d:\d\d)?)?\Z", re.ASCII
)


@dataclass(frozen=True)
class Condition:
    """A parsed condition, the columns that it names, in lower case, and a hash that identifies it."""

    tree: exp.Expr
    columns: tuple[str, ...]
    sha256: str


def parse_condition(where: str) -> Condition:
    """Parse the text of a condition, or raise ERASE_CONDITION."""
    try:
        trees = [tree for tree in parse(where, read="spark") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        raise _condition_error(f"{quote_value(where)} is not a condition in Spark SQL") from error
    if len(trees) != 1:
        raise _condition_error(f"{quote_value(where)} is not one condition")
    tree = trees[0]
    columns = tuple(sorted({column.name.lower() for column in tree.find_all(exp.Column)}))
    if not columns:
        raise _condition_error(f"{quote_value(where)} names no column")
    return Condition(tree, columns, hashlib.sha256(tree.sql(dialect="spark", comments=False).encode()).hexdigest())


def render_condition(condition: Condition, fields: Mapping[str, NestedField]) -> str:
    """Return the condition as DuckDB SQL. `fields` are its columns, by name in lower case."""
    return _DuckdbRenderer(fields).render_boolean(condition.tree)


def _condition_error(what: str, fix: str | None = None) -> Mistake:
    return Mistake("ERASE_CONDITION", what, fix=fix or RULE)


class _DuckdbRenderer:
    """Renders a condition as DuckDB SQL, node by node; an unsupported node is refused."""

    def __init__(self, fields: Mapping[str, NestedField]) -> None:
        self.fields = fields

    def render_boolean(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Paren):
            return f"({self.render_boolean(node.this)})"
        if isinstance(node, exp.And | exp.Or):
            operator = "AND" if isinstance(node, exp.And) else "OR"
            return f"({self.render_boolean(node.this)} {operator} {self.render_boolean(node.expression)})"
        if isinstance(node, exp.Not):
            return f"(NOT {self.render_boolean(node.this)})"
        if isinstance(node, exp.Column) and isinstance(self.find_field(node).field_type, BooleanType):
            return quote_identifier(self.find_field(node).name)
        if type(node) in _COMPARISONS:
            kind = self.find_operand_type(node.this, node.expression)
            operator = _COMPARISONS[type(node)]
            return f"({self.render_value(node.this, kind)} {operator} {self.render_value(node.expression, kind)})"
        return self.render_test(node)

    def render_test(self, node: exp.Expr) -> str:
        if isinstance(node, exp.In) and node.expressions and not (node.args.get("query") or node.args.get("unnest")):
            kind = self.find_operand_type(node.this)
            items = ", ".join(self.render_value(item, kind) for item in node.expressions)
            return f"({self.render_value(node.this, kind)} IN ({items}))"
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            kind = self.find_operand_type(node.this, low, high)
            return (
                f"({self.render_value(node.this, kind)} BETWEEN {self.render_value(low, kind)} "
                f"AND {self.render_value(high, kind)})"
            )
        if isinstance(node, exp.Is) and isinstance(node.this, exp.Column):
            column = quote_identifier(self.find_field(node.this).name)
            if isinstance(node.expression, exp.Null):
                return f"({column} IS NULL)"
            if isinstance(node.expression, exp.Boolean):
                return f"({self.render_boolean(node.this)} IS {'TRUE' if node.expression.this else 'FALSE'})"
        if isinstance(node, exp.Like):
            return self.render_like(node)
        raise self.unsupported_error(node)

    def render_like(self, node: exp.Like) -> str:
        pattern = node.expression
        if not isinstance(node.this, exp.Column) or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self.unsupported_error(node)
        if not isinstance(self.find_field(node.this).field_type, StringType):
            raise _condition_error(f"`{node.this.name}` is not a string: like compares only strings")
        if re.search(r"\\(?![%_\\])", re.sub(r"\\\\", "", pattern.this)):
            raise _condition_error(
                f"in the pattern {quote_value(pattern.this)} a backslash is not followed by %, _ or \\"
            )
        return f"({quote_identifier(self.find_field(node.this).name)} LIKE {quote_literal(pattern.this)} ESCAPE '\\')"

    def find_field(self, column: exp.Column) -> NestedField:
        if column.table:
            raise _condition_error(f"{quote_value(column.sql(dialect='spark'))} is not a plain column")
        return self.fields[column.name.lower()]

    def find_operand_type(self, *nodes: exp.Expr) -> IcebergType:
        """Return the type of the first column among the operands."""
        for node in nodes:
            inner = node.unnest()
            if isinstance(inner, exp.Column):
                column_type = self.find_field(inner).field_type
                if type(column_type) not in _TYPE_CLASSES:
                    raise _condition_error(
                        f"the column `{inner.name}` has the type {column_type}, which can't be compared here"
                    )
                return column_type
        raise self.unsupported_error(nodes[0].parent or nodes[0])

    def render_value(self, node: exp.Expr, kind: IcebergType) -> str:
        type_class = _TYPE_CLASSES[type(kind)]
        if isinstance(node, exp.Paren):
            return self.render_value(node.this, kind)
        if isinstance(node, exp.Null):
            return "NULL"
        if isinstance(node, exp.Column):
            return self.render_column(node, type_class)
        if isinstance(node, exp.Boolean) and type_class == "boolean":
            return "TRUE" if node.this else "FALSE"
        if isinstance(node, exp.Cast):
            return self.render_cast(node, type_class)
        if isinstance(node, exp.Neg) and type_class == "number":
            return f"(-{self.render_value(node.this, kind)})"
        if isinstance(node, exp.Literal):
            return self.render_literal(node, kind, type_class)
        raise self.unsupported_error(node)

    def render_column(self, node: exp.Column, type_class: str) -> str:
        field = self.find_field(node)
        if _TYPE_CLASSES.get(type(field.field_type)) != type_class:
            raise _condition_error(
                f"the column `{node.name}` is of type {field.field_type} and is compared with a {type_class}"
            )
        # Spark compares single precision with a number as doubles.
        return (
            f"CAST({quote_identifier(field.name)} AS DOUBLE)"
            if isinstance(field.field_type, FloatType)
            else quote_identifier(field.name)
        )

    def render_literal(self, node: exp.Literal, kind: IcebergType, type_class: str) -> str:
        text = str(node.this)
        if type_class == "number" and not node.is_string and _NUMBER.match(text):
            return f"CAST({text} AS DOUBLE)" if isinstance(kind, FloatType | DoubleType) else text
        if type_class == "string" and node.is_string:
            return quote_literal(text)
        if (
            type_class == "uuid"
            and node.is_string
            and re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)
        ):
            return f"CAST({quote_literal(text)} AS UUID)"
        if type_class == "time" and node.is_string:
            return _render_time(text, to_duckdb_type(kind))
        fix = "write numbers without quotes, strings in single quotes, days as date '2026-01-02'"
        raise _condition_error(f"{node.sql(dialect='spark')} is not a {type_class}", fix)

    def render_cast(self, node: exp.Cast, type_class: str) -> str:
        inner, target = node.this, node.to
        cast_type = _CASTS.get(target.this.name)
        is_negative = isinstance(inner, exp.Neg)
        inner = inner.this if is_negative else inner
        if not isinstance(inner, exp.Literal) or cast_type is None or node.args.get("format"):
            raise self.unsupported_error(node)
        if cast_type[0] != type_class:
            raise _condition_error(f"{node.sql(dialect='spark')} is not a {type_class}")
        if type_class == "time":
            return _render_time(str(inner.this), cast_type[1])
        text, sign = str(inner.this), "-" if is_negative else ""
        if type_class == "number" and not (
            text.isdigit() if cast_type[1].endswith(("INT", "INTEGER")) else _NUMBER.match(text)
        ):
            raise _condition_error(f"{node.sql(dialect='spark')} is not a number")
        sizes = ",".join(str(int(argument.name)) for argument in target.expressions) or "10,0"
        return (
            f"CAST({quote_literal(sign + text)} AS {cast_type[1]}{f'({sizes})' if cast_type[1] == 'DECIMAL' else ''})"
        )

    def unsupported_error(self, node: exp.Expr) -> Mistake:
        hint = "write a quote inside a string as \\'" if isinstance(node, exp.Concat) else None
        return _condition_error(
            f"{quote_value(node.sql(dialect='spark', comments=False))} is not allowed in this condition",
            hint,
        )


def _render_time(text: str, kind: str) -> str:
    match: Any = _TIME.match(text)
    if not match or (kind == "DATE" and match["clock"]) or (kind == "TIMESTAMP" and match["zone"]):
        fix = "write it as date '2026-01-02' or timestamp '2026-01-02 08:00:00'"
        raise _condition_error(f"{quote_value(text)} is not a {'day' if kind == 'DATE' else 'time'}", fix)
    return f"CAST({quote_literal(text)} AS {kind})"
