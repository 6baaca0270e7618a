"""Queries: SELECT, set operations, WITH."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from runnel.query.data_types import DataType, quoted
from runnel.query.dialect.expressions import Expressions
from runnel.query.dialect.from_clause import Schemas, Sources
from runnel.query.dialect.functions.registry import AGGREGATES
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.group_by import Grouping
from runnel.query.dialect.over_clause import order
from runnel.query.dialect.scope import (
    IN_FROM,
    IN_HAVING,
    IN_LIST,
    IN_ORDER,
    IN_WHERE,
    Border,
    Relation,
    Scope,
)
from runnel.query.dialect.typed_expression import Refused, Value, cast, converted, wider

_SELECT_PARTS = {"with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "order", "limit"}
_SELECT_PARTS |= {"offset", "distinct", "windows", "operation_modifiers"}
_SET_PARTS = {"with_", "this", "expression", "distinct", "order", "limit", "offset"}
_WORDS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


@dataclass(frozen=True)
class Query:
    """A translated query; its DuckDB columns are called c0, c1 and so on.

    `outer_names` are the columns of the query around that it names, in Spark's order, None if that is not known.
    """

    sql: str
    columns: tuple[Value, ...]
    ordered: bool = False
    outer_names: tuple[str | None, ...] | None = ()


class Queries:
    """Translates queries over tables of known schemas."""

    def __init__(self, schemas: Schemas, tables: Mapping[str, str]) -> None:
        self._ctes: Mapping[str, Relation] = {}
        self._place: list[int] = []
        self.expressions = Expressions(self._subquery)
        self._sources = Sources(self, schemas, tables)

    def query(self, node: exp.Expr, outer: Scope | None, ctes: Mapping[str, Relation], *, final: bool = False) -> Query:
        """Return the translated query; `outer` is what a correlated one may also name.

        A `final` one carries Spark's names, unless two are the same.
        """
        before = self._ctes
        prefix, self._ctes = self._with(node, ctes)
        try:
            found = self._body(node, outer, final)
        finally:
            self._ctes = before
        return replace(found, sql=prefix + found.sql)

    def _subquery(self, node: exp.Expr, scope: Scope) -> Query:
        """Return a query that stands inside an expression."""
        before, self._place = self._place, []
        border = Border(self._place)
        try:
            found = self.query(node, Scope(outer=scope, border=border), self._ctes)
        finally:
            self._place = before
        names = border.names()
        if border.references and node.find(exp.Limit, exp.Offset):
            # Spark cuts after it has put the rows of all outer rows together.
            raise Refused("LIMIT in a query that names columns of the query around")
        if scope.joining and len({column.sql for _, column in border.references}) > 1:
            raise Refused("a query in ON that depends on several columns")
        return replace(found, outer_names=names)

    @contextmanager
    def _at(self, place: int) -> Iterator[None]:
        self._place.append(place)
        try:
            yield
        finally:
            self._place.pop()

    def _body(self, node: exp.Expr, outer: Scope | None, final: bool) -> Query:
        if isinstance(node, exp.Subquery):
            check_arguments(node)
            if node.args.get("alias"):
                raise Refused("this form of subquery")
            if not any(node.args.get(key) for key in ("order", "limit", "offset")):
                return self.query(node.this, outer, self._ctes, final=final)
            return self._finished(node, self.query(node.this, outer, self._ctes), final)
        if isinstance(node, exp.SetOperation):
            return self._finished(node, self._set(node, outer), final)
        if isinstance(node, exp.Values):
            check_arguments(node)
            sql, columns = self._sources.values(node)
            return self._finished(node, Query(f"SELECT * FROM {sql}", columns), final)
        if isinstance(node, exp.Select):
            return self._select(node, outer, final)
        raise Refused(f"{type(node).__name__} as a query")

    def _with(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> tuple[str, Mapping[str, Relation]]:
        clause = node.args.get("with_")
        if clause is None:
            return "", ctes
        known = dict(ctes)
        parts = []
        if len({part.alias.lower() for part in clause.expressions}) != len(clause.expressions):
            raise Refused("parts of WITH of one name")
        for part in clause.expressions:
            check_arguments(part)
            found = self.query(part.this, None, known)
            alias = part.args["alias"]
            names = [column.name for column in alias.columns] or [column.name for column in found.columns]
            if len(names) != len(found.columns):
                raise Refused("this form of WITH")
            own = quoted(self.expressions.fresh("w"))
            columns = tuple(c.named(name) for c, name in zip(found.columns, names, strict=True))
            known[alias.name.lower()] = Relation((own,), columns)
            parts.append(f"{own} AS ({found.sql})")
        return f"WITH {', '.join(parts)} ", known

    def _set(self, node: exp.SetOperation, outer: Scope | None) -> Query:
        if set(_given(node)) - _SET_PARTS:
            raise Refused("this form of set operation")
        with self._at(0):
            left = self.query(node.this, outer, self._ctes)
        with self._at(1):
            right = self.query(node.args["expression"], outer, self._ctes)
        if len(left.columns) != len(right.columns):
            raise Refused("queries of different width")
        distinct = bool(node.args.get("distinct"))
        types = [wider(a.type, b.type) for a, b in zip(left.columns, right.columns, strict=True)]
        if any(not t.atomic or (t.floating and (distinct or not isinstance(node, exp.Union))) for t in types):
            raise Refused("a set operation on such types")
        word = _WORDS[type(node)] + ("" if distinct else " ALL")
        sql = f"{_retyped(left, types)} {word} {_retyped(right, types)}"
        columns = tuple(Value(f"c{i}", t, left.columns[i].name) for i, t in enumerate(types))
        return Query(sql, columns)

    def _finished(self, node: exp.Expr, found: Query, final: bool) -> Query:
        """Return a whole query with the ORDER BY and LIMIT after it, which see its columns only."""
        below = tuple(replace(column, sql=f"q.c{i}") for i, column in enumerate(found.columns))
        scope = Scope(relations=[Relation((), below)])
        entries = [self._order_entry(entry, scope, below) for entry in _ordered(node)]
        tail = (f" ORDER BY {', '.join(entries)}" if entries else "") + _limit(node)
        listed = ", ".join(f"{c.sql} AS {name}" for c, name in zip(below, _labels(below, final), strict=True))
        return Query(f"SELECT {listed} FROM ({found.sql}) AS q{tail}", found.columns, bool(entries))

    def _select(self, node: exp.Select, outer: Scope | None, final: bool) -> Query:
        if set(_given(node)) - _SELECT_PARTS or node.args.get("operation_modifiers"):
            raise Refused("a clause of SELECT: " + ", ".join(sorted(set(_given(node)) - _SELECT_PARTS)))
        scope = Scope(outer=outer)
        with self._at(IN_FROM):
            source = self._sources.clause(node, scope, self._ctes)
        scope.windows = {window.name.lower(): window for window in node.args.get("windows") or ()}
        where = node.args.get("where")
        with self._at(IN_WHERE):
            test = f" WHERE {self.expressions.filter(where.this, scope)}" if where is not None else ""
        grouping = Grouping(node, scope, self.expressions)
        scope.keys = grouping.keys
        scope.grouping_sets = grouping.has_sets
        with self._at(IN_LIST):
            columns = self._list(node, scope)
        group = grouping.clause(columns)
        late = replace(scope, outputs=_by_name(columns), prefer_outputs=True)
        with self._at(IN_HAVING):
            kept = self._having(node, replace(late, strict_outputs=True))
        with self._at(IN_ORDER):
            entries = [self._order_entry(entry, late, columns) for entry in _ordered(node)]
        if any(entry.find(exp.Window) for entry in node.expressions) and any(map(_aggregates, _ordered(node))):
            raise Refused("ORDER BY an aggregate beside windows")
        distinct = self._distinct(node, columns)
        labels = _labels(columns, final)
        listed = ", ".join(f"{_output(c, bool(distinct))} AS {n}" for c, n in zip(columns, labels, strict=True))
        tail = (f" ORDER BY {', '.join(entries)}" if entries else "") + _limit(node)
        return Query(f"SELECT {distinct}{listed}{source}{test}{group}{kept}{tail}", tuple(columns), bool(entries))

    def _having(self, node: exp.Select, scope: Scope) -> str:
        having = node.args.get("having")
        tests = [] if having is None else [self.expressions.filter(having.this, scope)]
        if scope.grouping_sets:
            # Of no rows, Spark makes no groups, not even that of the empty set.
            tests.append("count(*) > 0")
        return f" HAVING {' AND '.join(tests)}" if tests else ""

    def _list(self, node: exp.Select, scope: Scope) -> list[Value]:
        columns: list[Value] = []
        for entry in node.expressions:
            if isinstance(entry, exp.Star):
                columns += _without(scope.star(), entry)
            elif isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star):
                columns += _without(scope.star(tuple(p.name.lower() for p in entry.parts[:-1])), entry.this)
            else:
                columns.append(self.expressions.item(entry, scope))
                if isinstance(entry, exp.Alias):
                    # Later entries may name it, where no column of FROM has the name.
                    name = entry.alias.lower()
                    scope.outputs[name] = None if name in scope.outputs else columns[-1]
        return columns

    def _distinct(self, node: exp.Select, columns: list[Value]) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on") or any(not column.type.atomic for column in columns):
            raise Refused("DISTINCT of such types")
        return "DISTINCT "

    def _order_entry(self, entry: exp.Expr, scope: Scope, columns: Sequence[Value]) -> str:
        if not isinstance(entry, exp.Ordered) or isinstance(entry.this, exp.Var):
            raise Refused("this form of ORDER BY")
        check_arguments(entry)
        key = entry.this
        if key.find(exp.Subquery, exp.Exists, exp.Select):
            raise Refused("ORDER BY a query")
        if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
            if not 1 <= int(key.this) <= len(columns):
                raise Refused("ORDER BY a position that is not there")
            return self._ordered_by(entry, str(key.this), columns[int(key.this) - 1].type)
        if isinstance(key, exp.Column) and len(key.parts) == 1:
            found = [i for i, c in enumerate(columns) if c.name is not None and c.name.lower() == key.name.lower()]
            if len(found) == 1:
                return self._ordered_by(entry, str(found[0] + 1), columns[found[0]].type)
        value = self.expressions.value(key, scope)
        if value.literal is not None:
            raise Refused("ORDER BY a constant")
        return self._ordered_by(entry, value.sql, value.type)

    def _ordered_by(self, entry: exp.Ordered, sql: str, to: DataType) -> str:
        if not to.atomic:
            raise Refused(f"an order of {to}")
        return order(entry, sql)


def _labels(columns: Sequence[Value], final: bool) -> list[str]:
    names = [column.name for column in columns]
    if final and all(names) and len({str(name).lower() for name in names}) == len(names):
        return [quoted(str(name)) for name in names]
    return [f"c{i}" for i in range(len(columns))]


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value not in (None, [], False) or key == "distinct"]


def _ordered(node: exp.Expr) -> list[exp.Expr]:
    found = node.args.get("order")
    return list(found.expressions) if found is not None else []


def _aggregates(node: exp.Expr) -> bool:
    return any(str(call.this).lower() in AGGREGATES for call in node.find_all(exp.Anonymous))


def _limit(node: exp.Expr) -> str:
    sql = ""
    for key, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(key)
        if clause is None:
            continue
        many = clause.args.get("expression")
        if not isinstance(many, exp.Literal) or many.is_string or not many.this.isdigit():
            raise Refused(f"{word} of an expression")
        sql += f" {word} {many.this}"
    return sql


def _by_name(columns: list[Value]) -> dict[str, Value | None]:
    found: dict[str, Value | None] = {}
    for column in columns:
        if column.name is not None:
            name = column.name.lower()
            same = name in found and found[name] is not None and found[name].sql == column.sql  # type: ignore[union-attr]
            found[name] = column if name not in found or same else None
    return found


def _output(column: Value, distinct: bool) -> str:
    """Return a column in exactly its type; of the two zeros of a double, DISTINCT keeps the plain one."""
    if column.type.kind == "void":
        return cast("NULL", column.type)
    if column.type.kind in ("months", "days", "micros"):
        raise Refused("a column of intervals")
    if column.type.kind not in ("decimal", "double", "float"):
        return column.sql
    sql = f"({column.sql} + 0)" if distinct and column.type.floating else column.sql
    return cast(sql, column.type) if column.type.kind == "decimal" or distinct else sql


def _without(columns: object, star: exp.Star) -> list[Value]:
    check_arguments(star)
    chosen: list[Value] = list(columns)  # type: ignore[call-overload]
    dropped = {name.name.lower() for name in star.args.get("except_") or ()}
    if len(dropped) != len(star.args.get("except_") or ()):
        raise Refused("a star without a column twice")
    if not dropped <= {str(column.name).lower() for column in chosen}:
        raise Refused("a star without a column that it lacks")
    return [column for column in chosen if str(column.name).lower() not in dropped]


def _retyped(query: Query, types: list[DataType]) -> str:
    if [column.type for column in query.columns] == types:
        return f"(SELECT * FROM ({query.sql}))"
    listed = (
        f"{converted(replace(column, sql=f'c{i}'), to)} AS c{i}"
        for i, (column, to) in enumerate(zip(query.columns, types, strict=True))
    )
    return f"(SELECT {', '.join(listed)} FROM ({query.sql}))"
