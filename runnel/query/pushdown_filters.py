"""Read off a query what each table's rows must satisfy, so that files without such rows need not be read.

Pure. Only conditions that stand directly over a table, compare a column with a literal and mean the same in Iceberg's
evaluation as in Spark's are taken; whatever is in doubt is left out, which costs time and never a row.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp

_COMPARED: dict[type[exp.Expr], Any] = {
    exp.EQ: EqualTo,
    exp.LT: LessThan,
    exp.LTE: LessThanOrEqual,
    exp.GT: GreaterThan,
    exp.GTE: GreaterThanOrEqual,
}
# PyIceberg makes these from positional values, which the type checker's plugin for pydantic does not know.
_is_null, _not_null, _in, _starts_with = cast(tuple[Any, Any, Any, Any], (IsNull, NotNull, In, StartsWith))
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?\Z", re.ASCII)
_NUMBER = re.compile(r"\d{1,30}(\.\d{1,30})?\Z", re.ASCII)
_PREFIX = re.compile(r"[^%_\\]+%\Z")


@dataclass(frozen=True)
class _Reference:
    """A table in a FROM: how columns name it, and what it has."""

    qualifier: tuple[str, ...]
    table: str
    fields: Mapping[str, NestedField]


def table_filters(tree: exp.Expr, schemas: Mapping[str, Schema]) -> dict[str, BooleanExpression]:
    """Return for each table, by `layer.name`, a condition that every row satisfies that can matter to the query.

    A table that is read several times must serve all of them.
    """
    found: dict[str, list[BooleanExpression]] = {name: [] for name in schemas}
    understood: set[int] = set()
    for select in tree.find_all(exp.Select):
        for node, condition in _conditions(select, schemas):
            found[_name(node)].append(condition)
            understood.add(id(node))
    for node in tree.find_all(exp.Table):
        if id(node) not in understood and _name(node) in found:
            found[_name(node)].append(AlwaysTrue())
    return {name: Or(*parts) if len(parts) > 1 else parts[0] for name, parts in found.items() if parts}


def _name(node: exp.Table) -> str:
    return ".".join(part.name for part in node.parts).lower()


def _conditions(select: exp.Select, schemas: Mapping[str, Schema]) -> Iterator[tuple[exp.Table, BooleanExpression]]:
    where, start = select.args.get("where"), select.args.get("from_")
    if where is None or start is None:
        return
    joins: list[exp.Join] = select.args.get("joins") or []
    # Where an outer join can make a column null, "is null" is no condition on the table's rows.
    nulls = not any(join.side for join in joins)
    seen = [start.this, *(join.this for join in joins if join.kind.upper() not in ("SEMI", "ANTI"))]
    references = {id(node): found for node in seen if (found := _reference(node, schemas))}
    merges = any(join.args.get("using") or join.method for join in joins)
    for node in seen:
        if id(node) in references:
            reader = _Reader(references[id(node)], tuple(references.values()), nulls, merges)
            yield node, reader.condition(where.this) or AlwaysTrue()


def _reference(node: exp.Expr, schemas: Mapping[str, Schema]) -> _Reference | None:
    if not isinstance(node, exp.Table) or _name(node) not in schemas:
        return None
    if {key for key, value in node.args.items() if value} - {"this", "db", "alias"}:
        return None  # a sample, a pivot or whatever else may stand there
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    qualifier = (alias.name.lower(),) if alias is not None else tuple(_name(node).split("."))
    fields = {field.name.lower(): field for field in schemas[_name(node)].fields if _SAFE_NAME.match(field.name)}
    return _Reference(qualifier, _name(node), fields)


@dataclass(frozen=True)
class _Reader:
    """Turns the WHERE of a SELECT into a condition on one of its tables; None where it says nothing about it."""

    own: _Reference
    all: tuple[_Reference, ...]
    nulls: bool
    merges: bool

    def condition(self, node: exp.Expr) -> BooleanExpression | None:
        """Return what `node` asks of this table's rows."""
        node = node.unnest()
        if isinstance(node, exp.And):
            left, right = self.condition(node.left), self.condition(node.right)
            return And(left, right) if left and right else left or right
        if isinstance(node, exp.Or):
            left, right = self.condition(node.left), self.condition(node.right)
            return Or(left, right) if left and right else None
        try:
            return self._leaf(node)
        except (ValueError, ArithmeticError, TypeError):
            return None  # a literal that Iceberg can't compare with this column

    def _leaf(self, node: exp.Expr) -> BooleanExpression | None:
        if type(node) in _COMPARED:
            return self._compared(type(node), node.this, node.expression)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._compared(exp.GTE, node.this, node.args["low"])
            high = self._compared(exp.LTE, node.this, node.args["high"])
            return And(low, high) if low and high else low or high
        if isinstance(node, exp.In):
            return self._among(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            field = self._column(node.this)
            return cast(BooleanExpression, _is_null(field.name)) if field and self.nulls else None
        if isinstance(node, exp.Not) and isinstance(inner := node.this.unnest(), exp.Is):
            field = self._column(inner.this) if isinstance(inner.expression, exp.Null) else None
            return cast(BooleanExpression, _not_null(field.name)) if field else None
        if isinstance(node, exp.Like):
            return self._prefix(node)
        return None

    def _compared(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> BooleanExpression | None:
        field = self._column(left)
        if field is None:
            field, right, kind = self._column(right), left, _TURNED[kind]
        if field is None or (isinstance(field.field_type, DoubleType) and kind in (exp.GT, exp.GTE)):
            return None  # NaN is above every number, and bounds know nothing of it
        value = _literal(right, field.field_type)
        if value is None:
            return None
        found: BooleanExpression = _COMPARED[kind](field.name, literal(value).to(field.field_type))
        return found

    def _among(self, node: exp.In) -> BooleanExpression | None:
        field = self._column(node.this)
        if field is None or not node.expressions or set(node.args) - {"this", "expressions"}:
            return None
        values = [_literal(value, field.field_type) for value in node.expressions]
        if None in values:
            return None
        return cast(BooleanExpression, _in(field.name, [literal(value).to(field.field_type) for value in values]))

    def _prefix(self, node: exp.Like) -> BooleanExpression | None:
        field, pattern = self._column(node.this), node.expression
        if field is None or not isinstance(field.field_type, StringType) or isinstance(node.parent, exp.Escape):
            return None
        if not (isinstance(pattern, exp.Literal) and pattern.is_string and _PREFIX.match(pattern.this)):
            return None
        return cast(BooleanExpression, _starts_with(field.name, pattern.this[:-1]))

    def _column(self, node: exp.Expr) -> NestedField | None:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return None
        *qualifier, name = [part.name.lower() for part in node.parts]
        if qualifier:
            meant = [one for one in self.all if one.qualifier[-len(qualifier) :] == tuple(qualifier)]
        else:
            meant = [] if self.merges else [one for one in self.all if name in one.fields]
        return self.own.fields.get(name) if meant == [self.own] else None


def _literal(node: exp.Expr, kind: IcebergType) -> Any:
    """Return a literal as Iceberg compares it with a column of a type, or None where Spark may compare otherwise."""
    node = node.unnest()
    if isinstance(kind, (DateType, TimestampType, TimestamptzType)):
        return _time(node, kind)
    if isinstance(kind, StringType):
        return node.this if isinstance(node, exp.Literal) and node.is_string else None
    sign = -1 if isinstance(node, exp.Neg) else 1
    node = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(node, exp.Literal) or node.is_string or not _NUMBER.match(node.this):
        return None
    value = sign * Decimal(node.this)
    if isinstance(kind, (IntegerType, LongType)):
        return int(value) if "." not in node.this and -(2**63) <= value < 2**63 else None
    if isinstance(kind, DoubleType):
        return float(value)
    if isinstance(kind, DecimalType):
        exact = value.quantize(Decimal(1).scaleb(-kind.scale))
        return exact if exact == value and len(exact.as_tuple().digits) <= kind.precision else None
    return None


def _time(node: exp.Expr, kind: IcebergType) -> str | None:
    typed = str(node.to.this.value).upper() if isinstance(node, exp.Cast) else ""
    node = node.this if isinstance(node, exp.Cast) else node
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    zone = "+00:00" if isinstance(kind, TimestamptzType) else ""
    if isinstance(kind, DateType):
        return node.this if typed in ("", "DATE") and _DATE.match(node.this) else None
    if typed == "DATE" and _DATE.match(node.this):
        return f"{node.this}T00:00:00{zone}"
    if typed.startswith("TIMESTAMP") and _TIME.match(node.this):
        return f"{node.this.replace(' ', 'T')}{zone}"
    return None
