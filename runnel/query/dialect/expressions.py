"""Translate expressions of sqlglot's tree, with one rule for each type of node; nodes without a rule are refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.query.data_types import BOOLEAN
from runnel.query.dialect import literals, operators
from runnel.query.dialect.functions import aggregates, collections, datetimes, numbers, strings
from runnel.query.dialect.functions.registry import (
    AGGREGATE_FUNCTIONS,
    SCALAR_FUNCTIONS,
    WINDOW_FUNCTIONS,
    FunctionCall,
)
from runnel.query.dialect.grammar_check import check_arguments, check_precedence
from runnel.query.dialect.parser import SPELLING_KEY
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.special_forms import SpecialFormTranslator
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, extract_field

if TYPE_CHECKING:
    from runnel.query.dialect.select import TranslatedQuery

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_COMPARISONS |= {exp.NullSafeEQ: "<=>", exp.NullSafeNEQ: "!<=>"}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_BITS = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
MAX_CHARACTERS = 50_000
_FUNCTION_MODULES = (aggregates, collections, numbers, strings, datetimes)


class ExpressionTranslator(SpecialFormTranslator):
    """Translates expressions; `translate_subquery` translates a query inside an expression."""

    def __init__(self, translate_subquery: "Callable[[exp.Expr, QueryScope], TranslatedQuery]") -> None:
        self._translate_subquery = translate_subquery
        self._name_numbers = count(1)
        self._filter_ids: set[int] = set()
        self._rules: dict[type[exp.Expr], Callable[..., TypedExpression]] = {
            exp.Alias: lambda node, scope: self.translate(node.this, scope).with_name(node.alias),
            exp.And: lambda node, scope: self._logic("AND", node, scope),
            exp.Anonymous: self._function,
            exp.Between: self._between,
            exp.BitwiseNot: self._bitwise_not,
            exp.Boolean: lambda node, _: TypedExpression(
                "TRUE" if node.this else "FALSE", BOOLEAN, "true" if node.this else "false", bool(node.this)
            ),
            exp.Bracket: self._bracket,
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.Column: lambda node, scope: self._column(node, scope, bare=False),
            exp.DPipe: self._concat,
            exp.Div: lambda node, scope: operators.translate_division(*self._translate_operands(node, scope)),
            exp.Dot: lambda node, scope: self._dot(node, scope, bare=False),
            exp.Escape: self._escape,
            exp.Exists: self._exists,
            exp.Extract: lambda node, scope: datetimes.translate_extract(
                str(node.meta[SPELLING_KEY]), self.translate(node.expression, scope)
            ),
            exp.Filter: lambda node, scope: self._aggregate(node.this, scope, where=node.expression),
            exp.Identifier: lambda node, scope: scope.resolve_column((node.name,), bare=False),
            exp.In: self._in_predicate,
            exp.IntDiv: lambda node, scope: operators.translate_integer_division(
                *self._translate_operands(node, scope)
            ),
            exp.Interval: lambda node, _: literals.translate_interval(node),
            exp.Is: self._is,
            exp.Like: lambda node, scope: self._like(node, scope, "\\"),
            exp.Literal: lambda node, _: literals.translate_literal(node),
            exp.Neg: self._neg,
            exp.Not: self._not,
            exp.Null: lambda *_: literals.NULL,
            exp.Or: lambda node, scope: self._logic("OR", node, scope),
            exp.Paren: lambda node, scope: self.translate(node.this, scope),
            exp.RegexpLike: lambda node, scope: strings.translate_rlike(*self._translate_operands(node, scope)),
            exp.StrPosition: self._position,
            exp.Subquery: self._scalar_subquery,
            exp.Substring: self._substring,
            exp.Trim: self._trim,
            exp.TryCast: self._cast,
            exp.Window: self._window,
        }
        for kind, operator in _COMPARISONS.items():
            self._rules[kind] = self._binary_rule(operators.translate_comparison, operator)
        for kind, operator in _ARITHMETIC.items():
            self._rules[kind] = self._binary_rule(operators.translate_arithmetic, operator)
        for kind, operator in _BITS.items():
            self._rules[kind] = self._binary_rule(operators.translate_bitwise, operator)

    def new_name(self, prefix: str) -> str:
        """Return a name that nothing else in the query has."""
        return f"{prefix}{next(self._name_numbers)}"

    def translate(self, node: exp.Expr, scope: QueryScope) -> TypedExpression:
        """Return the translated expression."""
        if scope.keys and not scope.inside_aggregate:
            key = scope.keys.get(node.sql("spark").lower())
            if key is not None:
                return key
        handler = self._rules.get(type(node))
        if handler is None:
            raise Untranslatable(f"{type(node).__name__}")
        check_arguments(node)
        check_precedence(node)
        result = handler(node, scope)
        if len(result.sql) > MAX_CHARACTERS:
            # Some rules repeat their operand; nested, the SQL would grow exponentially.
            raise Untranslatable("an expression that is too long")
        return result

    def translate_select_item(self, node: exp.Expr, scope: QueryScope) -> TypedExpression:
        """Translate a SELECT list entry: a struct field is named after the field, a cast column after the column."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
            holder = self._column(node.this, scope, bare=False)
            translated = self.translate(node, scope)
            return translated if "struct_extract" in holder.sql else translated.with_name(holder.name)
        if not scope.keys:
            if isinstance(node, exp.Column):
                return self._column(node, scope, bare=True)
            if isinstance(node, exp.Dot):
                return self._dot(node, scope, bare=True)
        return self.translate(node, scope)

    def translate_filter(self, node: exp.Expr, scope: QueryScope) -> str:
        """Translate the condition of a WHERE or HAVING clause."""
        self._filter_ids |= {id(in_node) for in_node in _find_filtering_ins(node, is_conjunct=True)}
        return operators.require_condition(self.translate(node, scope))

    def _binary_rule(
        self, function: Callable[[str, TypedExpression, TypedExpression], TypedExpression], operator: str
    ) -> Callable[..., TypedExpression]:
        return lambda node, scope: function(operator, *self._translate_operands(node, scope))

    def _logic(self, operator: str, node: exp.Expr, scope: QueryScope) -> TypedExpression:
        left, right = self._translate_operands(node, scope)
        sql = f"({operators.require_condition(left)} {operator} {operators.require_condition(right)})"
        return TypedExpression(sql, BOOLEAN, operators.format_infix_name(left, operator, right))

    def _column(self, node: exp.Column, scope: QueryScope, *, bare: bool) -> TypedExpression:
        if isinstance(node.this, exp.Star):
            raise Untranslatable("a star inside an expression")
        parts = tuple(part.name for part in node.parts)
        try:
            return scope.resolve_column(parts, bare=bare)
        except Untranslatable:
            if len(parts) == 1 and parts[0].lower() in ("current_date", "current_timestamp"):
                return SCALAR_FUNCTIONS[parts[0].lower()](FunctionCall(parts[0].lower(), (), scope, self))
            raise

    def _dot(self, node: exp.Dot, scope: QueryScope, *, bare: bool) -> TypedExpression:
        if not isinstance(node.expression, exp.Identifier):
            raise Untranslatable("this use of a dot")
        holder = self.translate(node.this, scope)
        # Spark shortens the name only for a field of a plain column; `f(x).a` keeps its full name.
        return extract_field(holder, node.expression.name, bare=bare and isinstance(node.this, exp.Column))

    def _in_predicate(self, node: exp.In, scope: QueryScope) -> TypedExpression:
        subject = self.translate(node.this, scope)
        if node.args.get("query") is not None:
            if id(node) not in self._filter_ids:
                # Outside a filter, Spark gives FALSE if the answer is unknown (NULL).
                raise Untranslatable("IN a query, outside a filter")
            subquery = self._translate_subquery(node.args["query"], scope)
            if len(subquery.columns) != 1 or subquery.columns[0].type != subject.type:
                raise Untranslatable("IN a query of another type")
            spark_name = None if subject.name is None else f"({subject.name} IN (listquery()))"
            return TypedExpression(f"({subject.sql} IN ({subquery.sql}))", BOOLEAN, spark_name)
        values = [self.translate(item, scope) for item in node.expressions]
        if not values or node.args.get("unnest") or node.args.get("field"):
            raise Untranslatable("this form of IN")
        sqls = operators.convert_for_comparison([subject, *values])
        names = [value.name for value in (subject, *values)]
        spark_name = None if None in names else f"({names[0]} IN ({', '.join(str(n) for n in names[1:])}))"
        return TypedExpression(f"({sqls[0]} IN ({', '.join(sqls[1:])}))", BOOLEAN, spark_name)

    def _exists(self, node: exp.Exists, scope: QueryScope) -> TypedExpression:
        subquery = self._translate_subquery(node.this, scope)
        return TypedExpression(f"EXISTS ({subquery.sql})", BOOLEAN, _subquery_name("exists", subquery))

    def _scalar_subquery(self, node: exp.Subquery, scope: QueryScope) -> TypedExpression:
        subquery = self._translate_subquery(node, scope)
        if len(subquery.columns) != 1:
            raise Untranslatable("a query of several columns as a value")
        return TypedExpression(
            f"({subquery.sql})", subquery.columns[0].type, _subquery_name("scalarsubquery", subquery)
        )

    def _function(self, node: exp.Anonymous, scope: QueryScope) -> TypedExpression:
        name = _function_name(node)
        if name in AGGREGATE_FUNCTIONS:
            return self._aggregate(node, scope)
        if name in ("sort_array", "array_sort") and _is_collection_call(node):
            return self._sorted_collection(node, scope)
        if name not in SCALAR_FUNCTIONS:
            raise Untranslatable(f"the function {name}")
        return SCALAR_FUNCTIONS[name](FunctionCall(name, tuple(node.expressions), scope, self))

    def _sorted_collection(self, node: exp.Anonymous, scope: QueryScope) -> TypedExpression:
        ascending = len(node.expressions) == 1 or self.translate(node.expressions[1], scope).literal
        if not isinstance(ascending, bool) or _function_name(node) != "sort_array":
            raise Untranslatable("this order of collected values")
        inner = node.expressions[0]
        call = self._build_call(inner, scope)
        return aggregates.translate_sorted_collection(call, ascending)

    def _build_call(self, node: exp.Expr, scope: QueryScope, **options: object) -> FunctionCall:
        arguments = list(node.expressions)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        inner_scope = replace(scope, inside_aggregate=True)
        return FunctionCall(_function_name(node), tuple(arguments), inner_scope, self, distinct=distinct, **options)  # type: ignore[arg-type]

    def _aggregate(
        self, node: exp.Expr, scope: QueryScope, where: exp.Expr | None = None, **options: object
    ) -> TypedExpression:
        if not isinstance(node, exp.Anonymous) or _function_name(node) not in AGGREGATE_FUNCTIONS:
            raise Untranslatable("FILTER on this expression")
        filter_name = ""
        if where is not None:
            test = self.translate(where.this, replace(scope, inside_aggregate=True))
            options["where"] = f" FILTER (WHERE {operators.require_condition(test)})"
            filter_name = "" if test.name is None else f" FILTER (WHERE {test.name})"
        result = AGGREGATE_FUNCTIONS[_function_name(node)](self._build_call(node, scope, **options))
        return (
            result
            if where is None or result.name is None
            else result.with_name(result.name + filter_name if filter_name else None)
        )

    def _window(self, node: exp.Window, scope: QueryScope) -> TypedExpression:
        from runnel.query.dialect.over_clause import translate_over_clause

        function = node.this
        if not isinstance(function, exp.Anonymous):
            raise Untranslatable("this window function")
        name = _function_name(function)
        clause = translate_over_clause(node, scope, self, name)
        options: dict[str, object] = {"over": clause.sql, "ordered": clause.ordered, "framed": clause.framed}
        if name in AGGREGATE_FUNCTIONS:
            if isinstance(next(iter(function.expressions), None), exp.Distinct):
                raise Untranslatable("distinct values over a window")
            result = self._aggregate(function, scope, None, **options)
        elif name in WINDOW_FUNCTIONS and clause.ordered:
            call = self._build_call(function, scope, **options)
            result = WINDOW_FUNCTIONS[name](replace(call, scope=scope))
        else:
            raise Untranslatable(f"the window function {name}")
        has_name = result.name is not None and clause.name is not None
        return result.with_name(f"{result.name} OVER ({clause.name})" if has_name else None)


def _find_filtering_ins(node: exp.Expr, *, is_conjunct: bool) -> Iterator[exp.Expr]:
    """Yield the IN predicates of a filter for which NULL and FALSE have the same effect.

    Those are IN under AND and OR, and NOT IN as one of the top-level ANDed conditions (`is_conjunct`).
    """
    if isinstance(node, exp.In):
        yield node
    elif isinstance(node, exp.Paren):
        yield from _find_filtering_ins(node.this, is_conjunct=is_conjunct)
    elif isinstance(node, (exp.And, exp.Or)):
        is_conjunct = is_conjunct and isinstance(node, exp.And)
        yield from _find_filtering_ins(node.this, is_conjunct=is_conjunct)
        yield from _find_filtering_ins(node.args["expression"], is_conjunct=is_conjunct)
    elif isinstance(node, exp.Not) and is_conjunct:
        inner = node.this.unnest()
        if isinstance(inner, exp.In):
            yield inner


def _subquery_name(function: str, query: "TranslatedQuery") -> str | None:
    """Return Spark's name of a query inside an expression: it lists the columns of the outer query that it uses."""
    names = query.outer_names
    return None if names is None or None in names else f"{function}({', '.join(map(str, names))})"


def _function_name(node: exp.Expr) -> str:
    this = node.this
    return (this if isinstance(this, str) else str(this.name)).lower()


def _is_collection_call(node: exp.Anonymous) -> bool:
    inner = node.expressions[0] if node.expressions else None
    return isinstance(inner, exp.Anonymous) and _function_name(inner) in ("collect_list", "collect_set", "array_agg")
