"""Derive from a query what each table's rows must satisfy, so that files without such rows need not be read.

Pure. Only conditions directly on a table are used, which compare a column with a literal and which Iceberg evaluates
like Spark. Any doubtful condition is ignored, which costs time but never a row.
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

_COMPARISONS: dict[type[exp.Expr], Any] = {
    exp.EQ: EqualTo,
    exp.LT: LessThan,
    exp.LTE: LessThanOrEqual,
    exp.GT: GreaterThan,
    exp.GTE: GreaterThanOrEqual,
}
# PyIceberg accepts positional values here, which mypy's pydantic plugin does not know.
_is_null, _not_null, _in, _starts_with = cast(tuple[Any, Any, Any, Any], (IsNull, NotNull, In, StartsWith))
_REVERSED: dict[type[exp.Expr], type[exp.Expr]] = {
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
class _TableReference:
    """A table in a FROM clause: the qualifier of its columns, its name and its fields."""

    qualifier: tuple[str, ...]
    table: str
    fields: Mapping[str, NestedField]


def derive_table_filters(tree: exp.Expr, schemas: Mapping[str, Schema]) -> dict[str, BooleanExpression]:
    """Return for each table, by `layer.name`, a condition that every row relevant to the query satisfies.

    The condition of a table that is read several times covers all of its uses.
    """
    conditions: dict[str, list[BooleanExpression]] = {name: [] for name in schemas}
    handled_nodes: set[int] = set()
    for select in tree.find_all(exp.Select):
        for node, condition in _iterate_conditions(select, schemas):
            conditions[_qualify_name(node)].append(condition)
            handled_nodes.add(id(node))
    for node in tree.find_all(exp.Table):
        if id(node) not in handled_nodes and _qualify_name(node) in conditions:
            conditions[_qualify_name(node)].append(AlwaysTrue())
    return {
        name: Or(*alternatives) if len(alternatives) > 1 else alternatives[0]
        for name, alternatives in conditions.items()
        if alternatives
    }


def _qualify_name(node: exp.Table) -> str:
    return ".".join(part.name for part in node.parts).lower()


def _iterate_conditions(
    select: exp.Select, schemas: Mapping[str, Schema]
) -> Iterator[tuple[exp.Table, BooleanExpression]]:
    where, from_clause = select.args.get("where"), select.args.get("from_")
    if where is None or from_clause is None:
        return
    joins: list[exp.Join] = select.args.get("joins") or []
    # If an outer join can make a column null, "is null" is not a condition on the table's rows.
    allows_null_checks = not any(join.side for join in joins)
    joined_nodes = [from_clause.this, *(join.this for join in joins if join.kind.upper() not in ("SEMI", "ANTI"))]
    references = {id(node): reference for node in joined_nodes if (reference := _find_reference(node, schemas))}
    has_merged_columns = any(join.args.get("using") or join.method for join in joins)
    for node in joined_nodes:
        if id(node) in references:
            reader = _ConditionReader(
                references[id(node)], tuple(references.values()), allows_null_checks, has_merged_columns
            )
            yield node, reader.read_condition(where.this) or AlwaysTrue()


def _find_reference(node: exp.Expr, schemas: Mapping[str, Schema]) -> _TableReference | None:
    if not isinstance(node, exp.Table) or _qualify_name(node) not in schemas:
        return None
    if {key for key, value in node.args.items() if value} - {"this", "db", "alias"}:
        return None  # a sample, a pivot or anything else
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    qualifier = (alias.name.lower(),) if alias is not None else tuple(_qualify_name(node).split("."))
    fields = {
        field.name.lower(): field for field in schemas[_qualify_name(node)].fields if _SAFE_NAME.match(field.name)
    }
    return _TableReference(qualifier, _qualify_name(node), fields)


@dataclass(frozen=True)
class _ConditionReader:
    """Converts the WHERE of a SELECT to a condition on one of its tables; None if it says nothing about it."""

    target: _TableReference
    references: tuple[_TableReference, ...]
    allows_null_checks: bool
    has_merged_columns: bool

    def read_condition(self, node: exp.Expr) -> BooleanExpression | None:
        """Return the condition that `node` puts on this table's rows."""
        node = node.unnest()
        if isinstance(node, exp.And):
            left, right = self.read_condition(node.left), self.read_condition(node.right)
            return And(left, right) if left and right else left or right
        if isinstance(node, exp.Or):
            left, right = self.read_condition(node.left), self.read_condition(node.right)
            return Or(left, right) if left and right else None
        try:
            return self._read_leaf(node)
        except (ValueError, ArithmeticError, TypeError):
            return None  # a literal that Iceberg can't compare with this column

    def _read_leaf(self, node: exp.Expr) -> BooleanExpression | None:
        if type(node) in _COMPARISONS:
            return self._read_comparison(type(node), node.this, node.expression)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._read_comparison(exp.GTE, node.this, node.args["low"])
            high = self._read_comparison(exp.LTE, node.this, node.args["high"])
            return And(low, high) if low and high else low or high
        if isinstance(node, exp.In):
            return self._read_in_list(node)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            field = self._find_column(node.this)
            return cast(BooleanExpression, _is_null(field.name)) if field and self.allows_null_checks else None
        if isinstance(node, exp.Not) and isinstance(inner := node.this.unnest(), exp.Is):
            field = self._find_column(inner.this) if isinstance(inner.expression, exp.Null) else None
            return cast(BooleanExpression, _not_null(field.name)) if field else None
        if isinstance(node, exp.Like):
            return self._read_like(node)
        return None

    def _read_comparison(self, kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> BooleanExpression | None:
        field = self._find_column(left)
        if field is None:
            field, right, kind = self._find_column(right), left, _REVERSED[kind]
        if field is None or (isinstance(field.field_type, DoubleType) and kind in (exp.GT, exp.GTE)):
            return None  # NaN is greater than every number, and bounds don't include it
        value = _read_literal(right, field.field_type)
        if value is None:
            return None
        comparison: BooleanExpression = _COMPARISONS[kind](field.name, literal(value).to(field.field_type))
        return comparison

    def _read_in_list(self, node: exp.In) -> BooleanExpression | None:
        field = self._find_column(node.this)
        if field is None or not node.expressions or set(node.args) - {"this", "expressions"}:
            return None
        values = [_read_literal(value, field.field_type) for value in node.expressions]
        if None in values:
            return None
        return cast(BooleanExpression, _in(field.name, [literal(value).to(field.field_type) for value in values]))

    def _read_like(self, node: exp.Like) -> BooleanExpression | None:
        field, pattern = self._find_column(node.this), node.expression
        if field is None or not isinstance(field.field_type, StringType) or isinstance(node.parent, exp.Escape):
            return None
        if not (isinstance(pattern, exp.Literal) and pattern.is_string and _PREFIX.match(pattern.this)):
            return None
        return cast(BooleanExpression, _starts_with(field.name, pattern.this[:-1]))

    def _find_column(self, node: exp.Expr) -> NestedField | None:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return None
        *qualifier, name = [part.name.lower() for part in node.parts]
        if qualifier:
            matches = [
                reference for reference in self.references if reference.qualifier[-len(qualifier) :] == tuple(qualifier)
            ]
        else:
            matches = (
                []
                if self.has_merged_columns
                else [reference for reference in self.references if name in reference.fields]
            )
        return self.target.fields.get(name) if matches == [self.target] else None


def _read_literal(node: exp.Expr, kind: IcebergType) -> Any:
    """Return a literal for Iceberg's comparison with a column of a type, or None if Spark may compare differently."""
    node = node.unnest()
    if isinstance(kind, (DateType, TimestampType, TimestamptzType)):
        return _read_time_literal(node, kind)
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


def _read_time_literal(node: exp.Expr, kind: IcebergType) -> str | None:
    type_name = str(node.to.this.value).upper() if isinstance(node, exp.Cast) else ""
    node = node.this if isinstance(node, exp.Cast) else node
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    zone = "+00:00" if isinstance(kind, TimestamptzType) else ""
    if isinstance(kind, DateType):
        return node.this if type_name in ("", "DATE") and _DATE.match(node.this) else None
    if type_name == "DATE" and _DATE.match(node.this):
        return f"{node.this}T00:00:00{zone}"
    if type_name.startswith("TIMESTAMP") and _TIME.match(node.this):
        return f"{node.this.replace(' ', 'T')}{zone}"
    return None
