"""Translate FROM and JOIN."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.declare.model.column_types import SparkType
from runnel.query.data_types import quote_identifier
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.operators import convert_for_comparison, require_condition, unify_types
from runnel.query.dialect.scope import QueryScope, Relation
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, hide_statistics

if TYPE_CHECKING:
    from runnel.query.dialect.select import QueryTranslator

Schemas = Mapping[str, Mapping[str, SparkType]]
_SIDES = {"": "INNER", "LEFT": "LEFT", "RIGHT": "RIGHT", "FULL": "FULL"}


class FromClauseTranslator:
    """Translates FROM clauses; `tables` gives each table of the lake its DuckDB name."""

    def __init__(self, query_translator: "QueryTranslator", schemas: Schemas, tables: Mapping[str, str]) -> None:
        self._query_translator = query_translator
        self._schemas = schemas
        self._tables = tables

    def translate_clause(self, select: exp.Select, scope: QueryScope, ctes: Mapping[str, Relation]) -> str:
        """Translate the FROM clause of `select`, and add its relations to `scope`."""
        source = select.args.get("from_")
        if source is None:
            if select.args.get("joins") or select.args.get("laterals"):
                raise Untranslatable("a join without FROM")
            return ""
        sql, relation = self._translate_source(source.this, scope, ctes)
        scope.relations.append(relation)
        joins = "".join(self._translate_join(join, scope, ctes) for join in select.args.get("joins") or ())
        views = "".join(self._translate_lateral_view(lateral, scope) for lateral in select.args.get("laterals") or ())
        return f" FROM {sql}{joins}{views}"

    def _translate_source(
        self, node: exp.Expr, scope: QueryScope, ctes: Mapping[str, Relation]
    ) -> tuple[str, Relation]:
        check_arguments(node)
        if isinstance(node, exp.Table):
            return self._translate_table(node, ctes)
        if isinstance(node, exp.Subquery):
            if any(node.args.get(key) for key in ("with_", "order", "limit", "offset")):
                raise Untranslatable("this form of subquery")
            subquery = self._query_translator.translate(node.this, scope.outer, ctes)
            return self._alias_relation(f"({subquery.sql})", node, subquery.columns, ())
        if isinstance(node, exp.Values):
            sql, columns = self.translate_values(node)
            return self._alias_relation(sql, node, columns, ())
        raise Untranslatable(f"{type(node).__name__} in FROM")

    def _translate_table(self, node: exp.Table, ctes: Mapping[str, Relation]) -> tuple[str, Relation]:
        parts = tuple(part.name.lower() for part in node.parts)
        if len(parts) == 1 and parts[0] in ctes:
            cte = ctes[parts[0]]
            return self._alias_relation(cte.qualifier[0], node, cte.columns, parts)
        name = ".".join(parts)
        if name not in self._schemas:
            raise Untranslatable(f"the table {name} is not known")
        schema = self._schemas[name]
        if len({column.lower() for column in schema}) != len(schema):
            raise Untranslatable(f"{name} has columns that differ in case only")
        columns = tuple(TypedExpression(quote_identifier(column), to, column) for column, to in schema.items())
        return self._alias_relation(
            self._tables.get(name, quote_identifier(name)), node, columns, parts, positional=False
        )

    def _alias_relation(
        self,
        sql: str,
        node: exp.Expr,
        columns: Sequence[TypedExpression],
        qualifier: tuple[str, ...],
        *,
        positional: bool = True,
    ) -> tuple[str, Relation]:
        """Return a source under a new DuckDB name, and the relation with the columns that the query may use."""
        relation_name = quote_identifier(self._query_translator.expression_translator.new_name("t"))
        alias = node.args.get("alias")
        names: list[str | None] = [column.name for column in columns]
        if isinstance(alias, exp.TableAlias):
            check_arguments(alias)
            if alias.this is not None:
                qualifier = (alias.this.name.lower(),)
            if alias.columns:
                if len(alias.columns) != len(names):
                    raise Untranslatable("an alias with another number of columns")
                names = [column.name for column in alias.columns]
        inner_names = [f"c{i}" for i in range(len(columns))] if positional else None
        values = [
            TypedExpression(
                f"{relation_name}.{quote_identifier(inner_names[i])}"
                if inner_names
                else hide_statistics(f"{relation_name}.{column.sql}", column.type),
                column.type,
                names[i],
            )
            for i, column in enumerate(columns)
        ]
        return f"{sql} AS {relation_name}", Relation(qualifier, tuple(values))

    def translate_values(self, node: exp.Values) -> tuple[str, tuple[TypedExpression, ...]]:
        """Return an inline table, with the columns c0, c1 ... in DuckDB and col1, col2 ... in Spark."""
        rows = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        if len({len(row) for row in rows}) != 1 or len(rows) > 1000:
            raise Untranslatable("VALUES with more than 1000 rows, or rows of different length")
        translated = [
            [self._query_translator.expression_translator.translate(cell, QueryScope()) for cell in row] for row in rows
        ]
        cells: list[list[str]] = [[] for _ in rows]
        columns: list[TypedExpression] = []
        for i in range(len(rows[0])):
            sqls, to = unify_types([row[i] for row in translated])
            if to.kind == "void" or not to.is_atomic:
                raise Untranslatable(f"VALUES of type {to}")
            for row, sql in zip(cells, sqls, strict=True):
                row.append(sql)
            columns.append(TypedExpression(f"c{i}", to, f"col{i + 1}"))
        listed = ", ".join(f"({', '.join(row)})" for row in cells)
        names = ", ".join(quote_identifier(f"c{i}") for i in range(len(columns)))
        return f"(SELECT * FROM (VALUES {listed}) AS v({names}))", tuple(columns)

    def _translate_join(self, join: exp.Join, scope: QueryScope, ctes: Mapping[str, Relation]) -> str:
        check_arguments(join)
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI") or side not in _SIDES:
            raise Untranslatable("this kind of join")
        sql, relation = self._translate_source(join.this, scope, ctes)
        using = join.args.get("using")
        on = join.args.get("on")
        if kind in ("SEMI", "ANTI"):
            if side not in ("", "LEFT"):
                raise Untranslatable("this kind of join")
            join_scope = QueryScope(
                outer=scope.outer, relations=[*scope.relations, relation], using_columns=scope.using_columns
            )
            join_condition = (
                self._using_condition(using, scope, relation) if using else self._on_condition(on, join_scope)
            )
            return f" {kind} JOIN {sql} ON {join_condition}"
        if using:
            join_condition = self._using_condition(using, scope, relation)
            self._merge_using_columns(using, scope, relation, side)
            scope.relations.append(relation)
            return f" {_SIDES[side]} JOIN {sql} ON {join_condition}"
        scope.relations.append(relation)
        if on is None:
            if side:
                raise Untranslatable("an outer join without a condition")
            return f" CROSS JOIN {sql}"
        return f" {_SIDES[side]} JOIN {sql} ON {self._on_condition(on, scope)}"

    def _on_condition(self, on: exp.Expr | None, scope: QueryScope) -> str:
        if on is None:
            raise Untranslatable("a join without a condition")
        return require_condition(
            self._query_translator.expression_translator.translate(on, replace(scope, joining=True))
        )

    def _using_condition(self, using: Sequence[exp.Expr], scope: QueryScope, right: Relation) -> str:
        tests = []
        for name in (column.name for column in using):
            pair = [
                scope.resolve_column((name,), bare=False),
                QueryScope(relations=[right]).resolve_column((name,), bare=False),
            ]
            a, b = convert_for_comparison(pair)
            tests.append(f"{a} = {b}")
        return " AND ".join(tests)

    def _merge_using_columns(self, using: Sequence[exp.Expr], scope: QueryScope, right: Relation, side: str) -> None:
        for name in (column.name for column in using):
            left_column = scope.resolve_column((name,), bare=False)
            right_column = QueryScope(relations=[right]).resolve_column((name,), bare=False)
            if left_column.type != right_column.type:
                raise Untranslatable("USING columns of several types")
            merged_column = right_column if side == "RIGHT" else left_column
            if side == "FULL":
                merged_column = TypedExpression(
                    f"coalesce({left_column.sql}, {right_column.sql})", left_column.type, name
                )
            scope.using_columns[name.lower()] = merged_column.with_name(name)

    def _translate_lateral_view(self, node: exp.Lateral, scope: QueryScope) -> str:
        check_arguments(node)
        call, alias = node.this, node.args.get("alias")
        if not isinstance(call, exp.Anonymous) or str(call.this).lower() != "explode" or alias is None:
            raise Untranslatable("this LATERAL VIEW")
        value = self._query_translator.expression_translator.translate(call.expressions[0], scope)
        if value.type.kind != "array" or len(alias.columns) > 1:
            raise Untranslatable("explode of a map")
        relation_name = quote_identifier(self._query_translator.expression_translator.new_name("t"))
        name = alias.columns[0].name if alias.columns else "col"
        column = TypedExpression(
            hide_statistics(f"{relation_name}.c0", value.type.children[0].type), value.type.children[0].type, name
        )
        scope.relations.append(Relation((alias.this.name.lower(),) if alias.this else (), (column,)))
        kind, tail = ("LEFT", " ON TRUE") if node.args.get("outer") else ("CROSS", "")
        return f" {kind} JOIN LATERAL (SELECT unnest({value.sql}) AS c0) AS {relation_name}{tail}"
