"""Translate queries: SELECT, set operations, WITH."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from runnel.declare.model.column_types import SparkType
from runnel.query.data_types import quote_identifier
from runnel.query.dialect.expressions import ExpressionTranslator
from runnel.query.dialect.from_clause import FromClauseTranslator, Schemas
from runnel.query.dialect.functions.registry import AGGREGATE_FUNCTIONS
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.group_by import GroupByTranslator
from runnel.query.dialect.over_clause import format_order_entry
from runnel.query.dialect.scope import (
    IN_FROM,
    IN_HAVING,
    IN_LIST,
    IN_ORDER,
    IN_WHERE,
    QueryScope,
    Relation,
    SubqueryBoundary,
)
from runnel.query.dialect.typed_expression import (
    TypedExpression,
    Untranslatable,
    cast,
    cast_implicitly,
    find_common_type,
)

_SELECT_PARTS = {"with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "order", "limit"}
_SELECT_PARTS |= {"offset", "distinct", "windows", "operation_modifiers"}
_SET_PARTS = {"with_", "this", "expression", "distinct", "order", "limit", "offset"}
_SET_KEYWORDS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


@dataclass(frozen=True)
class TranslatedQuery:
    """A translated query; its DuckDB columns are called c0, c1 and so on.

    `outer_names` are the columns of the outer query that it uses, in Spark's order, None if that is not known.
    """

    sql: str
    columns: tuple[TypedExpression, ...]
    ordered: bool = False
    outer_names: tuple[str | None, ...] | None = ()


class QueryTranslator:
    """Translates queries over tables of known schemas."""

    def __init__(self, schemas: Schemas, tables: Mapping[str, str]) -> None:
        self._ctes: Mapping[str, Relation] = {}
        self._position: list[int] = []
        self.expression_translator = ExpressionTranslator(self._translate_subquery)
        self._from_translator = FromClauseTranslator(self, schemas, tables)

    def translate(
        self, node: exp.Expr, outer: QueryScope | None, ctes: Mapping[str, Relation], *, final: bool = False
    ) -> TranslatedQuery:
        """Translate a query; `outer` is the scope whose columns a correlated query may use.

        The columns of a `final` query have Spark's names, unless two names are the same.
        """
        outer_ctes = self._ctes
        prefix, self._ctes = self._translate_with(node, ctes)
        try:
            translated = self._translate_body(node, outer, final)
        finally:
            self._ctes = outer_ctes
        return replace(translated, sql=prefix + translated.sql)

    def _translate_subquery(self, node: exp.Expr, scope: QueryScope) -> TranslatedQuery:
        """Translate a query inside an expression."""
        outer_position, self._position = self._position, []
        boundary = SubqueryBoundary(self._position)
        try:
            translated = self.translate(node, QueryScope(outer=scope, boundary=boundary), self._ctes)
        finally:
            self._position = outer_position
        names = boundary.reference_names()
        if boundary.references and node.find(exp.Limit, exp.Offset):
            # Spark applies the LIMIT to the rows of all outer rows together.
            raise Untranslatable("LIMIT in a query that names columns of the outer query")
        if scope.joining and len({column.sql for _, column in boundary.references}) > 1:
            raise Untranslatable("a query in ON that depends on several columns")
        return replace(translated, outer_names=names)

    @contextmanager
    def _at_position(self, position: int) -> Iterator[None]:
        self._position.append(position)
        try:
            yield
        finally:
            self._position.pop()

    def _translate_body(self, node: exp.Expr, outer: QueryScope | None, final: bool) -> TranslatedQuery:
        if isinstance(node, exp.Subquery):
            check_arguments(node)
            if node.args.get("alias"):
                raise Untranslatable("this form of subquery")
            if not any(node.args.get(key) for key in ("order", "limit", "offset")):
                return self.translate(node.this, outer, self._ctes, final=final)
            return self._apply_order_and_limit(node, self.translate(node.this, outer, self._ctes), final)
        if isinstance(node, exp.SetOperation):
            return self._apply_order_and_limit(node, self._translate_set_operation(node, outer), final)
        if isinstance(node, exp.Values):
            check_arguments(node)
            sql, columns = self._from_translator.translate_values(node)
            return self._apply_order_and_limit(node, TranslatedQuery(f"SELECT * FROM {sql}", columns), final)
        if isinstance(node, exp.Select):
            return self._translate_select(node, outer, final)
        raise Untranslatable(f"{type(node).__name__} as a query")

    def _translate_with(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> tuple[str, Mapping[str, Relation]]:
        clause = node.args.get("with_")
        if clause is None:
            return "", ctes
        visible_ctes = dict(ctes)
        definitions = []
        if len({cte.alias.lower() for cte in clause.expressions}) != len(clause.expressions):
            raise Untranslatable("parts of WITH of one name")
        for cte in clause.expressions:
            check_arguments(cte)
            translated = self.translate(cte.this, None, visible_ctes)
            alias = cte.args["alias"]
            names = [column.name for column in alias.columns] or [column.name for column in translated.columns]
            if len(names) != len(translated.columns):
                raise Untranslatable("this form of WITH")
            relation_name = quote_identifier(self.expression_translator.new_name("w"))
            columns = tuple(c.with_name(name) for c, name in zip(translated.columns, names, strict=True))
            visible_ctes[alias.name.lower()] = Relation((relation_name,), columns)
            definitions.append(f"{relation_name} AS ({translated.sql})")
        return f"WITH {', '.join(definitions)} ", visible_ctes

    def _translate_set_operation(self, node: exp.SetOperation, outer: QueryScope | None) -> TranslatedQuery:
        if set(_present_arguments(node)) - _SET_PARTS:
            raise Untranslatable("this form of set operation")
        with self._at_position(0):
            left = self.translate(node.this, outer, self._ctes)
        with self._at_position(1):
            right = self.translate(node.args["expression"], outer, self._ctes)
        if len(left.columns) != len(right.columns):
            raise Untranslatable("queries of different width")
        distinct = bool(node.args.get("distinct"))
        types = [find_common_type(a.type, b.type) for a, b in zip(left.columns, right.columns, strict=True)]
        if any(not t.is_atomic or (t.is_floating and (distinct or not isinstance(node, exp.Union))) for t in types):
            raise Untranslatable("a set operation on columns of these types")
        keyword = _SET_KEYWORDS[type(node)] + ("" if distinct else " ALL")
        sql = f"{_cast_columns(left, types)} {keyword} {_cast_columns(right, types)}"
        columns = tuple(TypedExpression(f"c{i}", t, left.columns[i].name) for i, t in enumerate(types))
        return TranslatedQuery(sql, columns)

    def _apply_order_and_limit(self, node: exp.Expr, inner: TranslatedQuery, final: bool) -> TranslatedQuery:
        """Add the ORDER BY and LIMIT that follow a whole query; they see its columns only."""
        inner_columns = tuple(replace(column, sql=f"q.c{i}") for i, column in enumerate(inner.columns))
        scope = QueryScope(relations=[Relation((), inner_columns)])
        order_entries = [self._translate_order_entry(entry, scope, inner_columns) for entry in _order_entries(node)]
        tail = (f" ORDER BY {', '.join(order_entries)}" if order_entries else "") + _limit_clause(node)
        select_list = ", ".join(
            f"{c.sql} AS {name}" for c, name in zip(inner_columns, _column_labels(inner_columns, final), strict=True)
        )
        return TranslatedQuery(
            f"SELECT {select_list} FROM ({inner.sql}) AS q{tail}", inner.columns, bool(order_entries)
        )

    def _translate_select(self, node: exp.Select, outer: QueryScope | None, final: bool) -> TranslatedQuery:
        if set(_present_arguments(node)) - _SELECT_PARTS or node.args.get("operation_modifiers"):
            raise Untranslatable(
                "a clause of SELECT: " + ", ".join(sorted(set(_present_arguments(node)) - _SELECT_PARTS))
            )
        scope = QueryScope(outer=outer)
        with self._at_position(IN_FROM):
            from_clause = self._from_translator.translate_clause(node, scope, self._ctes)
        scope.windows = {window.name.lower(): window for window in node.args.get("windows") or ()}
        where = node.args.get("where")
        with self._at_position(IN_WHERE):
            where_clause = (
                f" WHERE {self.expression_translator.translate_filter(where.this, scope)}" if where is not None else ""
            )
        grouping = GroupByTranslator(node, scope, self.expression_translator)
        scope.keys = grouping.keys
        scope.grouping_sets = grouping.has_grouping_sets
        with self._at_position(IN_LIST):
            columns = self._translate_select_list(node, scope)
        group_clause = grouping.translate_clause(columns)
        late_scope = replace(scope, outputs=_index_by_name(columns), prefer_outputs=True)
        with self._at_position(IN_HAVING):
            having_clause = self._translate_having(node, replace(late_scope, strict_outputs=True))
        with self._at_position(IN_ORDER):
            order_entries = [self._translate_order_entry(entry, late_scope, columns) for entry in _order_entries(node)]
        if any(entry.find(exp.Window) for entry in node.expressions) and any(map(_has_aggregate, _order_entries(node))):
            raise Untranslatable("ORDER BY an aggregate in a query with window functions")
        distinct_keyword = self._translate_distinct(node, columns)
        labels = _column_labels(columns, final)
        select_list = ", ".join(
            f"{_output_sql(c, bool(distinct_keyword))} AS {n}" for c, n in zip(columns, labels, strict=True)
        )
        tail = (f" ORDER BY {', '.join(order_entries)}" if order_entries else "") + _limit_clause(node)
        return TranslatedQuery(
            f"SELECT {distinct_keyword}{select_list}{from_clause}{where_clause}{group_clause}{having_clause}{tail}",
            tuple(columns),
            bool(order_entries),
        )

    def _translate_having(self, node: exp.Select, scope: QueryScope) -> str:
        having = node.args.get("having")
        tests = [] if having is None else [self.expression_translator.translate_filter(having.this, scope)]
        if scope.grouping_sets:
            # For no rows, Spark makes no groups, not even that of the empty grouping set.
            tests.append("count(*) > 0")
        return f" HAVING {' AND '.join(tests)}" if tests else ""

    def _translate_select_list(self, node: exp.Select, scope: QueryScope) -> list[TypedExpression]:
        columns: list[TypedExpression] = []
        for entry in node.expressions:
            if isinstance(entry, exp.Star):
                columns += _apply_except(scope.expand_star(), entry)
            elif isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star):
                columns += _apply_except(scope.expand_star(tuple(p.name.lower() for p in entry.parts[:-1])), entry.this)
            else:
                columns.append(self.expression_translator.translate_select_item(entry, scope))
                if isinstance(entry, exp.Alias):
                    # Later entries may use the alias, if no column of FROM has that name.
                    name = entry.alias.lower()
                    scope.outputs[name] = None if name in scope.outputs else columns[-1]
        return columns

    def _translate_distinct(self, node: exp.Select, columns: list[TypedExpression]) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on") or any(not column.type.is_atomic for column in columns):
            raise Untranslatable("DISTINCT on columns of these types")
        return "DISTINCT "

    def _translate_order_entry(self, entry: exp.Expr, scope: QueryScope, columns: Sequence[TypedExpression]) -> str:
        if not isinstance(entry, exp.Ordered) or isinstance(entry.this, exp.Var):
            raise Untranslatable("this form of ORDER BY")
        check_arguments(entry)
        key = entry.this
        if key.find(exp.Subquery, exp.Exists, exp.Select):
            raise Untranslatable("ORDER BY a query")
        if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
            if not 1 <= int(key.this) <= len(columns):
                raise Untranslatable("ORDER BY a position that is not there")
            return self._order_by_sql(entry, str(key.this), columns[int(key.this) - 1].type)
        if isinstance(key, exp.Column) and len(key.parts) == 1:
            positions = [i for i, c in enumerate(columns) if c.name is not None and c.name.lower() == key.name.lower()]
            if len(positions) == 1:
                return self._order_by_sql(entry, str(positions[0] + 1), columns[positions[0]].type)
        value = self.expression_translator.translate(key, scope)
        if value.literal is not None:
            raise Untranslatable("ORDER BY a constant")
        return self._order_by_sql(entry, value.sql, value.type)

    def _order_by_sql(self, entry: exp.Ordered, sql: str, to: SparkType) -> str:
        if not to.is_atomic:
            raise Untranslatable(f"an order of {to}")
        return format_order_entry(entry, sql)


def _column_labels(columns: Sequence[TypedExpression], final: bool) -> list[str]:
    names = [column.name for column in columns]
    if final and all(names) and len({str(name).lower() for name in names}) == len(names):
        return [quote_identifier(str(name)) for name in names]
    return [f"c{i}" for i in range(len(columns))]


def _present_arguments(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value not in (None, [], False) or key == "distinct"]


def _order_entries(node: exp.Expr) -> list[exp.Expr]:
    order_clause = node.args.get("order")
    return list(order_clause.expressions) if order_clause is not None else []


def _has_aggregate(node: exp.Expr) -> bool:
    return any(str(call.this).lower() in AGGREGATE_FUNCTIONS for call in node.find_all(exp.Anonymous))


def _limit_clause(node: exp.Expr) -> str:
    sql = ""
    for key, keyword in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(key)
        if clause is None:
            continue
        row_count = clause.args.get("expression")
        if not isinstance(row_count, exp.Literal) or row_count.is_string or not row_count.this.isdigit():
            raise Untranslatable(f"{keyword} of an expression")
        sql += f" {keyword} {row_count.this}"
    return sql


def _index_by_name(columns: list[TypedExpression]) -> dict[str, TypedExpression | None]:
    columns_by_name: dict[str, TypedExpression | None] = {}
    for column in columns:
        if column.name is not None:
            name = column.name.lower()
            namesake = columns_by_name.get(name)
            is_same = namesake is not None and namesake.sql == column.sql
            columns_by_name[name] = column if name not in columns_by_name or is_same else None
    return columns_by_name


def _output_sql(column: TypedExpression, distinct: bool) -> str:
    """Return a column in exactly its type; with DISTINCT, -0.0 of a double becomes 0.0."""
    if column.type.kind == "void":
        return cast("NULL", column.type)
    if column.type.kind in ("months", "days", "micros"):
        raise Untranslatable("a column of intervals")
    if column.type.kind not in ("decimal", "double", "float"):
        return column.sql
    sql = f"({column.sql} + 0)" if distinct and column.type.is_floating else column.sql
    return cast(sql, column.type) if column.type.kind == "decimal" or distinct else sql


def _apply_except(columns: object, star: exp.Star) -> list[TypedExpression]:
    check_arguments(star)
    star_columns: list[TypedExpression] = list(columns)  # type: ignore[call-overload]
    excluded_names = {name.name.lower() for name in star.args.get("except_") or ()}
    if len(excluded_names) != len(star.args.get("except_") or ()):
        raise Untranslatable("a star without a column twice")
    if not excluded_names <= {str(column.name).lower() for column in star_columns}:
        raise Untranslatable("a star without a column that it lacks")
    return [column for column in star_columns if str(column.name).lower() not in excluded_names]


def _cast_columns(query: TranslatedQuery, types: list[SparkType]) -> str:
    if [column.type for column in query.columns] == types:
        return f"(SELECT * FROM ({query.sql}))"
    select_list = (
        f"{cast_implicitly(replace(column, sql=f'c{i}'), to)} AS c{i}"
        for i, (column, to) in enumerate(zip(query.columns, types, strict=True))
    )
    return f"(SELECT {', '.join(select_list)} FROM ({query.sql}))"
