"""Expressions: from sqlglot's tree to values, one rule per kind of node; what has no rule is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from runnel.query.data_types import BOOLEAN
from runnel.query.dialect import literals, operators
from runnel.query.dialect.functions import aggregates, collections, datetimes, numbers, strings
from runnel.query.dialect.functions.registry import AGGREGATES, SCALARS, WINDOWED, Call
from runnel.query.dialect.grammar_check import check_arguments, check_precedence
from runnel.query.dialect.parser import WRITTEN
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.special_forms import Forms
from runnel.query.dialect.typed_expression import Refused, Value, field_of

if TYPE_CHECKING:
    from runnel.query.dialect.select import Query

N = TypeVar("N", bound=exp.Expr)
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_COMPARISONS |= {exp.NullSafeEQ: "<=>", exp.NullSafeNEQ: "!<=>"}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_BITS = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
MOST_CHARACTERS = 50_000
_FUNCTIONS = (aggregates, collections, numbers, strings, datetimes)


class Expressions(Forms):
    """Translates expressions; `subquery` translates a query that stands inside one."""

    def __init__(self, subquery: "Callable[[exp.Expr, Scope], Query]") -> None:
        self._subquery = subquery
        self._numbers = count(1)
        self._filters: set[int] = set()
        self._rules: dict[type[exp.Expr], Callable[..., Value]] = {
            exp.Alias: lambda node, scope: self.value(node.this, scope).named(node.alias),
            exp.And: lambda node, scope: self._logic("AND", node, scope),
            exp.Anonymous: self._function,
            exp.Between: self._between,
            exp.BitwiseNot: self._bitwise_not,
            exp.Boolean: lambda node, _: Value(
                "TRUE" if node.this else "FALSE", BOOLEAN, "true" if node.this else "false", bool(node.this)
            ),
            exp.Bracket: self._bracket,
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.Column: lambda node, scope: self._column(node, scope, bare=False),
            exp.DPipe: self._concat,
            exp.Div: lambda node, scope: operators.division(*self._pair(node, scope)),
            exp.Dot: lambda node, scope: self._dot(node, scope, bare=False),
            exp.Escape: self._escape,
            exp.Exists: self._exists,
            exp.Extract: lambda node, scope: datetimes.extract(
                str(node.meta[WRITTEN]), self.value(node.expression, scope)
            ),
            exp.Filter: lambda node, scope: self._aggregate(node.this, scope, where=node.expression),
            exp.Identifier: lambda node, scope: scope.column((node.name,), bare=False),
            exp.In: self._in,
            exp.IntDiv: lambda node, scope: operators.whole_division(*self._pair(node, scope)),
            exp.Interval: lambda node, _: literals.interval(node),
            exp.Is: self._is,
            exp.Like: lambda node, scope: self._like(node, scope, "\\"),
            exp.Literal: lambda node, _: literals.literal(node),
            exp.Neg: self._neg,
            exp.Not: self._not,
            exp.Null: lambda *_: literals.NULL,
            exp.Or: lambda node, scope: self._logic("OR", node, scope),
            exp.Paren: lambda node, scope: self.value(node.this, scope),
            exp.RegexpLike: lambda node, scope: strings.matching(*self._pair(node, scope)),
            exp.StrPosition: self._position,
            exp.Subquery: self._scalar,
            exp.Substring: self._substring,
            exp.Trim: self._trim,
            exp.TryCast: self._cast,
            exp.Window: self._window,
        }
        for kind, operator in _COMPARISONS.items():
            self._rules[kind] = self._infix(operators.comparison, operator)
        for kind, operator in _ARITHMETIC.items():
            self._rules[kind] = self._infix(operators.arithmetic, operator)
        for kind, operator in _BITS.items():
            self._rules[kind] = self._infix(operators.bitwise, operator)

    def fresh(self, prefix: str) -> str:
        """Return a name that nothing else in the query has."""
        return f"{prefix}{next(self._numbers)}"

    def value(self, node: exp.Expr, scope: Scope) -> Value:
        """Return the translated expression."""
        if scope.keys and not scope.inside_aggregate:
            key = scope.keys.get(node.sql("spark").lower())
            if key is not None:
                return key
        handler = self._rules.get(type(node))
        if handler is None:
            raise Refused(f"{type(node).__name__}")
        check_arguments(node)
        check_precedence(node)
        found = handler(node, scope)
        if len(found.sql) > MOST_CHARACTERS:
            # Some rules write their operand several times; nested, that would grow without bound.
            raise Refused("an expression that is too long")
        return found

    def item(self, node: exp.Expr, scope: Scope) -> Value:
        """Return an entry of a SELECT list: a field alone is named by the field, a cast column by the column."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
            holder = self._column(node.this, scope, bare=False)
            found = self.value(node, scope)
            return found if "struct_extract" in holder.sql else found.named(holder.name)
        if not scope.keys:
            if isinstance(node, exp.Column):
                return self._column(node, scope, bare=True)
            if isinstance(node, exp.Dot):
                return self._dot(node, scope, bare=True)
        return self.value(node, scope)

    def filter(self, node: exp.Expr, scope: Scope) -> str:
        """Return the condition of a WHERE or HAVING."""
        self._filters |= {id(found) for found in _filtering(node, alone=True)}
        return operators.condition(self.value(node, scope))

    def _infix(self, function: Callable[[str, Value, Value], Value], operator: str) -> Callable[..., Value]:
        return lambda node, scope: function(operator, *self._pair(node, scope))

    def _logic(self, operator: str, node: exp.Expr, scope: Scope) -> Value:
        left, right = self._pair(node, scope)
        sql = f"({operators.condition(left)} {operator} {operators.condition(right)})"
        return Value(sql, BOOLEAN, operators.infix(left, operator, right))

    def _column(self, node: exp.Column, scope: Scope, *, bare: bool) -> Value:
        if isinstance(node.this, exp.Star):
            raise Refused("a star inside an expression")
        parts = tuple(part.name for part in node.parts)
        try:
            return scope.column(parts, bare=bare)
        except Refused:
            if len(parts) == 1 and parts[0].lower() in ("current_date", "current_timestamp"):
                return SCALARS[parts[0].lower()](Call(parts[0].lower(), (), scope, self))
            raise

    def _dot(self, node: exp.Dot, scope: Scope, *, bare: bool) -> Value:
        if not isinstance(node.expression, exp.Identifier):
            raise Refused("this use of a dot")
        holder = self.value(node.this, scope)
        # Only a name reached from a plain column is short; `f(x).a` keeps all of it.
        return field_of(holder, node.expression.name, bare=bare and isinstance(node.this, exp.Column))

    def _in(self, node: exp.In, scope: Scope) -> Value:
        subject = self.value(node.this, scope)
        if node.args.get("query") is not None:
            if id(node) not in self._filters:
                # Elsewhere than in a filter, Spark gives FALSE where the answer is unknown.
                raise Refused("IN a query, outside a filter")
            found = self._subquery(node.args["query"], scope)
            if len(found.columns) != 1 or found.columns[0].type != subject.type:
                raise Refused("IN a query of another type")
            own = None if subject.name is None else f"({subject.name} IN (listquery()))"
            return Value(f"({subject.sql} IN ({found.sql}))", BOOLEAN, own)
        values = [self.value(item, scope) for item in node.expressions]
        if not values or node.args.get("unnest") or node.args.get("field"):
            raise Refused("this form of IN")
        sqls = operators.comparable([subject, *values])
        names = [value.name for value in (subject, *values)]
        own = None if None in names else f"({names[0]} IN ({', '.join(str(n) for n in names[1:])}))"
        return Value(f"({sqls[0]} IN ({', '.join(sqls[1:])}))", BOOLEAN, own)

    def _exists(self, node: exp.Exists, scope: Scope) -> Value:
        found = self._subquery(node.this, scope)
        return Value(f"EXISTS ({found.sql})", BOOLEAN, _subquery_name("exists", found))

    def _scalar(self, node: exp.Subquery, scope: Scope) -> Value:
        found = self._subquery(node, scope)
        if len(found.columns) != 1:
            raise Refused("a query of several columns as a value")
        return Value(f"({found.sql})", found.columns[0].type, _subquery_name("scalarsubquery", found))

    def _function(self, node: exp.Anonymous, scope: Scope) -> Value:
        name = _name(node)
        if name in AGGREGATES:
            return self._aggregate(node, scope)
        if name in ("sort_array", "array_sort") and _collects(node):
            return self._sorted_collection(node, scope)
        if name not in SCALARS:
            raise Refused(f"the function {name}")
        return SCALARS[name](Call(name, tuple(node.expressions), scope, self))

    def _sorted_collection(self, node: exp.Anonymous, scope: Scope) -> Value:
        ascending = len(node.expressions) == 1 or self.value(node.expressions[1], scope).literal
        if not isinstance(ascending, bool) or _name(node) != "sort_array":
            raise Refused("such an order")
        inner = node.expressions[0]
        call = self._call(inner, scope)
        return aggregates.sorted_collection(call, ascending)

    def _call(self, node: exp.Expr, scope: Scope, **options: object) -> Call:
        arguments = list(node.expressions)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
        inside = replace(scope, inside_aggregate=True)
        return Call(_name(node), tuple(arguments), inside, self, distinct=distinct, **options)  # type: ignore[arg-type]

    def _aggregate(self, node: exp.Expr, scope: Scope, where: exp.Expr | None = None, **options: object) -> Value:
        if not isinstance(node, exp.Anonymous) or _name(node) not in AGGREGATES:
            raise Refused("a filter on this")
        own = ""
        if where is not None:
            test = self.value(where.this, replace(scope, inside_aggregate=True))
            options["where"] = f" FILTER (WHERE {operators.condition(test)})"
            own = "" if test.name is None else f" FILTER (WHERE {test.name})"
        found = AGGREGATES[_name(node)](self._call(node, scope, **options))
        return found if where is None or found.name is None else found.named(found.name + own if own else None)

    def _window(self, node: exp.Window, scope: Scope) -> Value:
        from runnel.query.dialect.over_clause import over

        function = node.this
        if not isinstance(function, exp.Anonymous):
            raise Refused("this window function")
        name = _name(function)
        clause = over(node, scope, self, name)
        options: dict[str, object] = {"over": clause.sql, "ordered": clause.ordered, "framed": clause.framed}
        if name in AGGREGATES:
            if isinstance(next(iter(function.expressions), None), exp.Distinct):
                raise Refused("distinct values over a window")
            found = self._aggregate(function, scope, None, **options)
        elif name in WINDOWED and clause.ordered:
            call = self._call(function, scope, **options)
            found = WINDOWED[name](replace(call, scope=scope))
        else:
            raise Refused(f"the window function {name}")
        known = found.name is not None and clause.name is not None
        return found.named(f"{found.name} OVER ({clause.name})" if known else None)


def _filtering(node: exp.Expr, *, alone: bool) -> Iterator[exp.Expr]:
    """Yield the INs that decide by being true alone, be it under OR, or by being false as one of the ANDed parts."""
    if isinstance(node, exp.In):
        yield node
    elif isinstance(node, exp.Paren):
        yield from _filtering(node.this, alone=alone)
    elif isinstance(node, (exp.And, exp.Or)):
        alone = alone and isinstance(node, exp.And)
        yield from _filtering(node.this, alone=alone)
        yield from _filtering(node.args["expression"], alone=alone)
    elif isinstance(node, exp.Not) and alone:
        inner = node.this.unnest()
        if isinstance(inner, exp.In):
            yield inner


def _subquery_name(function: str, query: "Query") -> str | None:
    """Return Spark's name of a query inside an expression: its columns of the query around stand in it."""
    names = query.outer_names
    return None if names is None or None in names else f"{function}({', '.join(map(str, names))})"


def _name(node: exp.Expr) -> str:
    this = node.this
    return (this if isinstance(this, str) else str(this.name)).lower()


def _collects(node: exp.Anonymous) -> bool:
    inner = node.expressions[0] if node.expressions else None
    return isinstance(inner, exp.Anonymous) and _name(inner) in ("collect_list", "collect_set", "array_agg")
