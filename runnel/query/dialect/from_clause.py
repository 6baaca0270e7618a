"""FROM and JOIN."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.query.data_types import DataType, quoted
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.operators import comparable, condition, unified
from runnel.query.dialect.scope import Relation, Scope
from runnel.query.dialect.typed_expression import Refused, Value, stored

if TYPE_CHECKING:
    from runnel.query.dialect.select import Queries

Schemas = Mapping[str, Mapping[str, DataType]]
_SIDES = {"": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}


class Sources:
    """Translates FROM clauses; `tables` gives each table of the lake its DuckDB name."""

    def __init__(self, queries: "Queries", schemas: Schemas, tables: Mapping[str, str]) -> None:
        self._queries = queries
        self._schemas = schemas
        self._tables = tables

    def clause(self, select: exp.Select, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        """Return the FROM clause of `select`, and put what it names into `scope`."""
        source = select.args.get("from_")
        if source is None:
            if select.args.get("joins") or select.args.get("laterals"):
                raise Refused("a join without FROM")
            return ""
        sql, relation = self._source(source.this, scope, ctes)
        scope.relations.append(relation)
        joins = "".join(self._join(join, scope, ctes) for join in select.args.get("joins") or ())
        views = "".join(self._view(lateral, scope) for lateral in select.args.get("laterals") or ())
        return f" FROM {sql}{joins}{views}"

    def _source(self, node: exp.Expr, scope: Scope, ctes: Mapping[str, Relation]) -> tuple[str, Relation]:
        check_arguments(node)
        if isinstance(node, exp.Table):
            return self._table(node, ctes)
        if isinstance(node, exp.Subquery):
            if any(node.args.get(key) for key in ("with_", "order", "limit", "offset")):
                raise Refused("this form of subquery")
            found = self._queries.query(node.this, scope.outer, ctes)
            return self._aliased(f"({found.sql})", node, found.columns, ())
        if isinstance(node, exp.Values):
            sql, columns = self.values(node)
            return self._aliased(sql, node, columns, ())
        raise Refused(f"{type(node).__name__} in FROM")

    def _table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> tuple[str, Relation]:
        parts = tuple(part.name.lower() for part in node.parts)
        if len(parts) == 1 and parts[0] in ctes:
            known = ctes[parts[0]]
            return self._aliased(known.qualifier[0], node, known.columns, parts)
        name = ".".join(parts)
        if name not in self._schemas:
            raise Refused(f"the table {name} is not known")
        schema = self._schemas[name]
        if len({column.lower() for column in schema}) != len(schema):
            raise Refused(f"{name} has columns that differ in case only")
        columns = tuple(Value(quoted(column), to, column) for column, to in schema.items())
        return self._aliased(self._tables.get(name, quoted(name)), node, columns, parts, positional=False)

    def _aliased(
        self,
        sql: str,
        node: exp.Expr,
        columns: Sequence[Value],
        qualifier: tuple[str, ...],
        *,
        positional: bool = True,
    ) -> tuple[str, Relation]:
        """Return a source under a fresh name, and the relation with the columns that can be named."""
        own = quoted(self._queries.expressions.fresh("t"))
        alias = node.args.get("alias")
        names: list[str | None] = [column.name for column in columns]
        if isinstance(alias, exp.TableAlias):
            check_arguments(alias)
            if alias.this is not None:
                qualifier = (alias.this.name.lower(),)
            if alias.columns:
                if len(alias.columns) != len(names):
                    raise Refused("an alias with another number of columns")
                names = [column.name for column in alias.columns]
        inner = [f"c{i}" for i in range(len(columns))] if positional else None
        values = [
            Value(
                f"{own}.{quoted(inner[i])}" if inner else stored(f"{own}.{column.sql}", column.type),
                column.type,
                names[i],
            )
            for i, column in enumerate(columns)
        ]
        return f"{sql} AS {own}", Relation(qualifier, tuple(values))

    def values(self, node: exp.Values) -> tuple[str, tuple[Value, ...]]:
        """Return an inline table, with the columns c0, c1 ... in DuckDB and col1, col2 ... in Spark."""
        rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        if len({len(row) for row in rows}) != 1 or len(rows) > 1000:
            raise Refused("such VALUES")
        translated = [[self._queries.expressions.value(cell, Scope()) for cell in row] for row in rows]
        cells: list[list[str]] = [[] for _ in rows]
        columns: list[Value] = []
        for i in range(len(rows[0])):
            sqls, to = unified([row[i] for row in translated])
            if to.kind == "void" or not to.atomic:
                raise Refused("VALUES of such types")
            for row, sql in zip(cells, sqls, strict=True):
                row.append(sql)
            columns.append(Value(f"c{i}", to, f"col{i + 1}"))
        listed = ", ".join(f"({', '.join(row)})" for row in cells)
        names = ", ".join(quoted(f"c{i}") for i in range(len(columns)))
        return f"(SELECT * FROM (VALUES {listed}) AS v({names}))", tuple(columns)

    def _join(self, join: exp.Join, scope: Scope, ctes: Mapping[str, Relation]) -> str:
        check_arguments(join)
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI") or side not in _SIDES:
            raise Refused("this kind of join")
        sql, relation = self._source(join.this, scope, ctes)
        using = join.args.get("using")
        on = join.args.get("on")
        if kind in ("SEMI", "ANTI"):
            if side not in ("", "LEFT"):
                raise Refused("this kind of join")
            seen = Scope(outer=scope.outer, relations=[*scope.relations, relation], merged=scope.merged)
            test = self._using(using, scope, relation) if using else self._on(on, seen)
            return f" {kind} JOIN {sql} ON {test}"
        if using:
            test = self._using(using, scope, relation)
            self._merge(using, scope, relation, side)
            scope.relations.append(relation)
            return f" {_SIDES[side]} JOIN {sql} ON {test}"
        scope.relations.append(relation)
        if on is None:
            if side:
                raise Refused("an outer join without a condition")
            return f" CROSS JOIN {sql}"
        return f" {_SIDES[side]} JOIN {sql} ON {self._on(on, scope)}"

    def _on(self, on: exp.Expr | None, scope: Scope) -> str:
        if on is None:
            raise Refused("a join without a condition")
        return condition(self._queries.expressions.value(on, replace(scope, joining=True)))

    def _using(self, using: Sequence[exp.Expr], scope: Scope, right: Relation) -> str:
        tests = []
        for name in (column.name for column in using):
            pair = [scope.column((name,), bare=False), Scope(relations=[right]).column((name,), bare=False)]
            a, b = comparable(pair)
            tests.append(f"{a} = {b}")
        return " AND ".join(tests)

    def _merge(self, using: Sequence[exp.Expr], scope: Scope, right: Relation, side: str) -> None:
        for name in (column.name for column in using):
            left = scope.column((name,), bare=False)
            other = Scope(relations=[right]).column((name,), bare=False)
            if left.type != other.type:
                raise Refused("USING columns of several types")
            kept = other if side == "RIGHT" else left
            if side == "FULL":
                kept = Value(f"coalesce({left.sql}, {other.sql})", left.type, name)
            scope.merged[name.lower()] = kept.named(name)

    def _view(self, node: exp.Lateral, scope: Scope) -> str:
        check_arguments(node)
        call, alias = node.this, node.args.get("alias")
        if not isinstance(call, exp.Anonymous) or str(call.this).lower() != "explode" or alias is None:
            raise Refused("this LATERAL VIEW")
        value = self._queries.expressions.value(call.expressions[0], scope)
        if value.type.kind != "array" or len(alias.columns) > 1:
            raise Refused("explode of a map")
        own = quoted(self._queries.expressions.fresh("t"))
        name = alias.columns[0].name if alias.columns else "col"
        column = Value(stored(f"{own}.c0", value.type.children[0]), value.type.children[0], name)
        scope.relations.append(Relation((alias.this.name.lower(),) if alias.this else (), (column,)))
        kind, tail = ("LEFT", " ON TRUE") if node.args.get("outer") else ("CROSS", "")
        return f" {kind} JOIN LATERAL (SELECT unnest({value.sql}) AS c0) AS {own}{tail}"
