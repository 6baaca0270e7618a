"""The condition of an erasure: a small, safe part of Spark SQL, told to DuckDB word for word.

Comparisons of columns with literals or columns, and, or, not, in, between, like, is null. Everything else is refused:
what removes data for ever must mean the same in every engine. Reads no table and runs nothing.
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
from runnel.lake.scan.scan_sql import duckdb_type, literal, quoted
from runnel.names import shown

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
_CLASSES: dict[type[IcebergType], str] = {
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
    """A parsed condition, and the columns that it names, in lower case. The hash tells two conditions apart."""

    tree: exp.Expr
    columns: tuple[str, ...]
    sha256: str


def parsed(where: str) -> Condition:
    """Return what a user typed as a condition, or raise ERASE_CONDITION."""
    try:
        trees = [tree for tree in parse(where, read="spark") if tree is not None]
    except (SqlglotError, RecursionError) as error:
        raise _refused(f"{shown(where)} is not a condition in Spark SQL") from error
    if len(trees) != 1:
        raise _refused(f"{shown(where)} is not one condition")
    tree = trees[0]
    columns = tuple(sorted({column.name.lower() for column in tree.find_all(exp.Column)}))
    if not columns:
        raise _refused(f"{shown(where)} names no column")
    return Condition(tree, columns, hashlib.sha256(tree.sql(dialect="spark", comments=False).encode()).hexdigest())


def told(condition: Condition, fields: Mapping[str, NestedField]) -> str:
    """Return the condition for DuckDB. `fields` are its columns, by name in lower case."""
    return _Teller(fields).boolean(condition.tree)


def _refused(what: str, fix: str | None = None) -> Mistake:
    return Mistake("ERASE_CONDITION", what, fix=fix or RULE)


class _Teller:
    """Writes a condition for DuckDB, node by node; a node that is not known is refused."""

    def __init__(self, fields: Mapping[str, NestedField]) -> None:
        self.fields = fields

    def boolean(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Paren):
            return f"({self.boolean(node.this)})"
        if isinstance(node, exp.And | exp.Or):
            word = "AND" if isinstance(node, exp.And) else "OR"
            return f"({self.boolean(node.this)} {word} {self.boolean(node.expression)})"
        if isinstance(node, exp.Not):
            return f"(NOT {self.boolean(node.this)})"
        if isinstance(node, exp.Column) and isinstance(self.field(node).field_type, BooleanType):
            return quoted(self.field(node).name)
        if type(node) in _COMPARISONS:
            kind = self.kind(node.this, node.expression)
            word = _COMPARISONS[type(node)]
            return f"({self.value(node.this, kind)} {word} {self.value(node.expression, kind)})"
        return self.test(node)

    def test(self, node: exp.Expr) -> str:
        if isinstance(node, exp.In) and node.expressions and not (node.args.get("query") or node.args.get("unnest")):
            kind = self.kind(node.this)
            listed = ", ".join(self.value(part, kind) for part in node.expressions)
            return f"({self.value(node.this, kind)} IN ({listed}))"
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            kind = self.kind(node.this, low, high)
            return f"({self.value(node.this, kind)} BETWEEN {self.value(low, kind)} AND {self.value(high, kind)})"
        if isinstance(node, exp.Is) and isinstance(node.this, exp.Column):
            column = quoted(self.field(node.this).name)
            if isinstance(node.expression, exp.Null):
                return f"({column} IS NULL)"
            if isinstance(node.expression, exp.Boolean):
                return f"({self.boolean(node.this)} IS {'TRUE' if node.expression.this else 'FALSE'})"
        if isinstance(node, exp.Like):
            return self.like(node)
        raise self.unknown(node)

    def like(self, node: exp.Like) -> str:
        pattern = node.expression
        if not isinstance(node.this, exp.Column) or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self.unknown(node)
        if not isinstance(self.field(node.this).field_type, StringType):
            raise _refused(f"`{node.this.name}` is no string: like can't be asked of it")
        if re.search(r"\\(?![%_\\])", re.sub(r"\\\\", "", pattern.this)):
            raise _refused(f"in the pattern {shown(pattern.this)} a backslash stands before neither %, _ nor \\")
        return f"({quoted(self.field(node.this).name)} LIKE {literal(pattern.this)} ESCAPE '\\')"

    def field(self, column: exp.Column) -> NestedField:
        if column.table:
            raise _refused(f"{shown(column.sql(dialect='spark'))} is not a plain column")
        return self.fields[column.name.lower()]

    def kind(self, *nodes: exp.Expr) -> IcebergType:
        """Return the type of the first column among operands."""
        for node in nodes:
            inner = node.unnest()
            if isinstance(inner, exp.Column):
                found = self.field(inner).field_type
                if type(found) not in _CLASSES:
                    raise _refused(f"the column `{inner.name}` has the type {found}, which can't be compared here")
                return found
        raise self.unknown(nodes[0].parent or nodes[0])

    def value(self, node: exp.Expr, kind: IcebergType) -> str:
        wanted = _CLASSES[type(kind)]
        if isinstance(node, exp.Paren):
            return self.value(node.this, kind)
        if isinstance(node, exp.Null):
            return "NULL"
        if isinstance(node, exp.Column):
            return self.column(node, wanted)
        if isinstance(node, exp.Boolean) and wanted == "boolean":
            return "TRUE" if node.this else "FALSE"
        if isinstance(node, exp.Cast):
            return self.cast(node, wanted)
        if isinstance(node, exp.Neg) and wanted == "number":
            return f"(-{self.value(node.this, kind)})"
        if isinstance(node, exp.Literal):
            return self.literal(node, kind, wanted)
        raise self.unknown(node)

    def column(self, node: exp.Column, wanted: str) -> str:
        field = self.field(node)
        if _CLASSES.get(type(field.field_type)) != wanted:
            raise _refused(f"the column `{node.name}` is of type {field.field_type} and is compared with a {wanted}")
        # Spark compares single precision with a number as doubles.
        return (
            f"CAST({quoted(field.name)} AS DOUBLE)" if isinstance(field.field_type, FloatType) else quoted(field.name)
        )

    def literal(self, node: exp.Literal, kind: IcebergType, wanted: str) -> str:
        text = str(node.this)
        if wanted == "number" and not node.is_string and _NUMBER.match(text):
            return f"CAST({text} AS DOUBLE)" if isinstance(kind, FloatType | DoubleType) else text
        if wanted == "string" and node.is_string:
            return literal(text)
        if (
            wanted == "uuid"
            and node.is_string
            and re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)
        ):
            return f"CAST({literal(text)} AS UUID)"
        if wanted == "time" and node.is_string:
            return _time(text, duckdb_type(kind))
        fix = "write numbers without quotes, strings in single quotes, days as date '2026-01-02'"
        raise _refused(f"{node.sql(dialect='spark')} is not a {wanted}", fix)

    def cast(self, node: exp.Cast, wanted: str) -> str:
        inner, target = node.this, node.to
        found = _CASTS.get(target.this.name)
        negative = isinstance(inner, exp.Neg)
        inner = inner.this if negative else inner
        if not isinstance(inner, exp.Literal) or found is None or node.args.get("format"):
            raise self.unknown(node)
        if found[0] != wanted:
            raise _refused(f"{node.sql(dialect='spark')} is not a {wanted}")
        if wanted == "time":
            return _time(str(inner.this), found[1])
        text, sign = str(inner.this), "-" if negative else ""
        if wanted == "number" and not (
            text.isdigit() if found[1].endswith(("INT", "INTEGER")) else _NUMBER.match(text)
        ):
            raise _refused(f"{node.sql(dialect='spark')} is not a number")
        sizes = ",".join(str(int(part.name)) for part in target.expressions) or "10,0"
        return f"CAST({literal(sign + text)} AS {found[1]}{f'({sizes})' if found[1] == 'DECIMAL' else ''})"

    def unknown(self, node: exp.Expr) -> Mistake:
        hint = "write a quote inside a string as \\'" if isinstance(node, exp.Concat) else None
        return _refused(
            f"{shown(node.sql(dialect='spark', comments=False))} can't stand in the condition of an erasure", hint
        )


def _time(text: str, kind: str) -> str:
    found: Any = _TIME.match(text)
    if not found or (kind == "DATE" and found["clock"]) or (kind == "TIMESTAMP" and found["zone"]):
        fix = "write it as date '2026-01-02' or timestamp '2026-01-02 08:00:00'"
        raise _refused(f"{shown(text)} is not a {'day' if kind == 'DATE' else 'time'}", fix)
    return f"CAST({literal(text)} AS {kind})"
