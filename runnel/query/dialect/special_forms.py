"""Forms of syntax that are no function calls: CASE, CAST, LIKE, brackets and their like."""

from abc import ABC, abstractmethod

from sqlglot import exp

from runnel.query.data_types import BOOLEAN, DataType, spark_type
from runnel.query.dialect import literals, operators
from runnel.query.dialect.casts import cast_to
from runnel.query.dialect.functions import collections, strings
from runnel.query.dialect.functions.registry import SCALARS, Call
from runnel.query.dialect.parser import WRITTEN
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.typed_expression import Refused, Value, call_name


class Forms(ABC):
    """The rules of such forms; `value` translates what stands inside them."""

    @abstractmethod
    def value(self, node: exp.Expr, scope: Scope) -> Value:
        """Return the translated expression."""

    @abstractmethod
    def fresh(self, prefix: str) -> str:
        """Return a name that nothing else in the query has."""

    def _pair(self, node: exp.Expr, scope: Scope) -> tuple[Value, Value]:
        return self.value(node.this, scope), self.value(node.args["expression"], scope)

    def _neg(self, node: exp.Neg, scope: Scope) -> Value:
        if isinstance(node.this, exp.Literal):
            return literals.literal(node.this, negative=True)
        return operators.negated(self.value(node.this, scope))

    def _not(self, node: exp.Not, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            own = None if value.name is None else value.name.replace(" IS NULL)", " IS NOT NULL)")
            return Value(f"(NOT {value.sql})", BOOLEAN, own)
        own = None if value.name is None else f"(NOT {value.name})"
        return Value(f"(NOT {operators.condition(value)})", BOOLEAN, own)

    def _is(self, node: exp.Is, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if isinstance(node.expression, exp.Null):
            return Value(f"({value.sql} IS NULL)", BOOLEAN, None if value.name is None else f"({value.name} IS NULL)")
        if isinstance(node.expression, exp.Boolean):
            word = "true" if node.expression.this else "false"
            own = None if value.name is None else f"({value.name} <=> {word})"
            return Value(f"({operators.condition(value)} IS NOT DISTINCT FROM {word})", BOOLEAN, own)
        raise Refused("this form of IS")

    def _bitwise_not(self, node: exp.BitwiseNot, scope: Scope) -> Value:
        value = self.value(node.this, scope)
        if not value.type.integral:
            raise Refused(f"~ of {value.type}")
        return Value(f"(~{value.sql})", value.type, None if value.name is None else f"~{value.name}")

    def _between(self, node: exp.Between, scope: Scope) -> Value:
        values = [self.value(node.args[key], scope) for key in ("this", "low", "high")]
        subject, low = operators.comparable(values[:2])
        again, high = operators.comparable([values[0], values[2]])
        if subject == again:
            sql = f"({subject} BETWEEN {low} AND {high})"
        else:
            sql = f"({subject} >= {low} AND {again} <= {high})"
        return Value(sql, BOOLEAN, call_name("between", *values))

    def _case(self, node: exp.Case, scope: Scope) -> Value:
        subject = self.value(node.this, scope) if node.this is not None else None
        tests: list[Value] = []
        results: list[Value] = []
        for branch in node.args["ifs"]:
            test = self.value(branch.this, scope)
            tests.append(test if subject is None else operators.comparison("=", subject, test))
            results.append(self.value(branch.args["true"], scope))
        default = node.args.get("default")
        if default is not None:
            results.append(self.value(default, scope))
        sqls, to = operators.unified(results)
        branches = [f"WHEN {operators.condition(t)} THEN {s}" for t, s in zip(tests, sqls, strict=False)]
        shown = [f"WHEN {t.name} THEN {r.name}" for t, r in zip(tests, results, strict=False)]
        if default is not None:
            branches.append(f"ELSE {sqls[-1]}")
            shown.append(f"ELSE {results[-1].name}")
        known = None not in [value.name for value in (*tests, *results)]
        return Value(f"(CASE {' '.join(branches)} END)", to, f"CASE {' '.join(shown)} END" if known else None)

    def _cast(self, node: exp.Cast, scope: Scope) -> Value:
        tries = isinstance(node, exp.TryCast)
        if node.args.get("format") or node.args.get("action"):
            raise Refused("a cast with a format")
        value = self.value(node.this, scope)
        to = _type(node.to)
        if isinstance(node.this, exp.Literal) and node.this.is_string and to.kind in ("date", "timestamp"):
            # DATE '...' and CAST('...' AS DATE) are one node here, with two names in Spark.
            literal = node.meta.get(WRITTEN) == "literal"
            known = literals.moment(node.this.this.strip() if literal else node.this.this, to.kind)
            if known is not None and not tries:
                return known if literal else known.named(_cast_name("CAST", value, to))
            if literal:
                return Value(cast_to(value, to), to, None)
        return Value(cast_to(value, to, tries=tries), to, _cast_name("TRY_CAST" if tries else "CAST", value, to))

    def _concat(self, node: exp.DPipe, scope: Scope) -> Value:
        left, right = self._pair(node, scope)
        own = None
        if left.name is not None and right.name is not None:
            own = f"concat({left.name}, {right.name})"
        return Value(strings.joined([left, right]), DataType("string"), own)

    def _escape(self, node: exp.Escape, scope: Scope) -> Value:
        if not isinstance(node.this, exp.Like):
            raise Refused("this use of ESCAPE")
        mark = node.expression.name
        if len(mark) != 1 or mark in "%_":
            raise Refused("such an escape")
        return self._like(node.this, scope, mark)

    def _like(self, node: exp.Like, scope: Scope, escape: str) -> Value:
        found = strings.like(*self._pair(node, scope), escape)
        if not node.args.get("negate"):
            return found
        return Value(f"(NOT {found.sql})", BOOLEAN, None if found.name is None else f"(NOT {found.name})")

    def _bracket(self, node: exp.Bracket, scope: Scope) -> Value:
        if len(node.expressions) != 1:
            raise Refused("a part of an array")
        return collections.item(self.value(node.this, scope), self.value(node.expressions[0], scope))

    def _substring(self, node: exp.Substring, scope: Scope) -> Value:
        written = str(node.meta[WRITTEN])
        nodes = [node.args[key] for key in ("this", "start", "length") if node.args.get(key) is not None]
        return SCALARS["substring"](Call(written, tuple(nodes), scope, self))

    def _trim(self, node: exp.Trim, scope: Scope) -> Value:
        where = (node.args.get("position") or "").upper()
        mark = node.args.get("expression")
        if not where and mark is None:
            return SCALARS["trim"](Call("trim", (node.this,), scope, self))
        if not where or mark is None or not (isinstance(mark, exp.Literal) and mark.is_string and mark.this):
            raise Refused("this form of TRIM")
        value = self.value(node.this, scope)
        if value.type.kind != "string":
            raise Refused(f"TRIM of {value.type}")
        function = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[where]
        own = None if value.name is None else f"TRIM({where} {mark.this} FROM {value.name})"
        return Value(f"{function}({value.sql}, {literals.literal(mark).sql})", value.type, own)

    def _position(self, node: exp.StrPosition, scope: Scope) -> Value:
        if node.args.get("position") or node.args.get("occurrence"):
            raise Refused("position from a place")
        nodes = (node.args["substr"], node.this)
        return SCALARS["locate"](Call("locate", nodes, scope, self))


def _cast_name(word: str, value: Value, to: DataType) -> str | None:
    return None if value.name is None or not to.atomic else f"{word}({value.name} AS {str(to).upper()})"


def _type(node: exp.DataType) -> DataType:
    try:
        return spark_type(node.sql("spark").replace(" ", "").lower())
    except Exception as error:
        raise Refused(f"the type {node.sql('spark')}") from error
