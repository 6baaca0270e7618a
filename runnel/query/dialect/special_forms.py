"""Translate syntax that is not a function call: CASE, CAST, LIKE, brackets and similar forms."""

from abc import ABC, abstractmethod

from sqlglot import exp

from runnel.declare.model.column_types import SparkType
from runnel.query.data_types import BOOLEAN, parse_spark_type
from runnel.query.dialect import literals, operators
from runnel.query.dialect.casts import cast_like_spark
from runnel.query.dialect.functions import collections, strings
from runnel.query.dialect.functions.registry import SCALAR_FUNCTIONS, FunctionCall
from runnel.query.dialect.parser import SPELLING_KEY
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, format_call_name


class SpecialFormTranslator(ABC):
    """The rules of special forms; `translate` translates the expressions inside them."""

    @abstractmethod
    def translate(self, node: exp.Expr, scope: QueryScope) -> TypedExpression:
        """Return the translated expression."""

    @abstractmethod
    def new_name(self, prefix: str) -> str:
        """Return a name that nothing else in the query has."""

    def _translate_operands(self, node: exp.Expr, scope: QueryScope) -> tuple[TypedExpression, TypedExpression]:
        return self.translate(node.this, scope), self.translate(node.args["expression"], scope)

    def _neg(self, node: exp.Neg, scope: QueryScope) -> TypedExpression:
        if isinstance(node.this, exp.Literal):
            return literals.translate_literal(node.this, negative=True)
        return operators.negate(self.translate(node.this, scope))

    def _not(self, node: exp.Not, scope: QueryScope) -> TypedExpression:
        value = self.translate(node.this, scope)
        if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            spark_name = None if value.name is None else value.name.replace(" IS NULL)", " IS NOT NULL)")
            return TypedExpression(f"(NOT {value.sql})", BOOLEAN, spark_name)
        spark_name = None if value.name is None else f"(NOT {value.name})"
        return TypedExpression(f"(NOT {operators.require_condition(value)})", BOOLEAN, spark_name)

    def _is(self, node: exp.Is, scope: QueryScope) -> TypedExpression:
        value = self.translate(node.this, scope)
        if isinstance(node.expression, exp.Null):
            return TypedExpression(
                f"({value.sql} IS NULL)", BOOLEAN, None if value.name is None else f"({value.name} IS NULL)"
            )
        if isinstance(node.expression, exp.Boolean):
            truth_value = "true" if node.expression.this else "false"
            spark_name = None if value.name is None else f"({value.name} <=> {truth_value})"
            return TypedExpression(
                f"({operators.require_condition(value)} IS NOT DISTINCT FROM {truth_value})", BOOLEAN, spark_name
            )
        raise Untranslatable("this form of IS")

    def _bitwise_not(self, node: exp.BitwiseNot, scope: QueryScope) -> TypedExpression:
        value = self.translate(node.this, scope)
        if not value.type.is_integral:
            raise Untranslatable(f"~ of {value.type}")
        return TypedExpression(f"(~{value.sql})", value.type, None if value.name is None else f"~{value.name}")

    def _between(self, node: exp.Between, scope: QueryScope) -> TypedExpression:
        values = [self.translate(node.args[key], scope) for key in ("this", "low", "high")]
        subject, low = operators.convert_for_comparison(values[:2])
        high_subject, high = operators.convert_for_comparison([values[0], values[2]])
        if subject == high_subject:
            sql = f"({subject} BETWEEN {low} AND {high})"
        else:
            sql = f"({subject} >= {low} AND {high_subject} <= {high})"
        return TypedExpression(sql, BOOLEAN, format_call_name("between", *values))

    def _case(self, node: exp.Case, scope: QueryScope) -> TypedExpression:
        subject = self.translate(node.this, scope) if node.this is not None else None
        tests: list[TypedExpression] = []
        results: list[TypedExpression] = []
        for branch in node.args["ifs"]:
            test = self.translate(branch.this, scope)
            tests.append(test if subject is None else operators.translate_comparison("=", subject, test))
            results.append(self.translate(branch.args["true"], scope))
        default = node.args.get("default")
        if default is not None:
            results.append(self.translate(default, scope))
        sqls, to = operators.unify_types(results)
        branches = [f"WHEN {operators.require_condition(t)} THEN {s}" for t, s in zip(tests, sqls, strict=False)]
        name_parts = [f"WHEN {t.name} THEN {r.name}" for t, r in zip(tests, results, strict=False)]
        if default is not None:
            branches.append(f"ELSE {sqls[-1]}")
            name_parts.append(f"ELSE {results[-1].name}")
        has_names = None not in [value.name for value in (*tests, *results)]
        return TypedExpression(
            f"(CASE {' '.join(branches)} END)", to, f"CASE {' '.join(name_parts)} END" if has_names else None
        )

    def _cast(self, node: exp.Cast, scope: QueryScope) -> TypedExpression:
        is_try = isinstance(node, exp.TryCast)
        if node.args.get("format") or node.args.get("action"):
            raise Untranslatable("a cast with a format")
        value = self.translate(node.this, scope)
        to = _parse_type(node.to)
        if isinstance(node.this, exp.Literal) and node.this.is_string and to.kind in ("date", "timestamp"):
            # sqlglot has one node for DATE '...' and CAST('...' AS DATE), but Spark names them differently.
            is_literal = node.meta.get(SPELLING_KEY) == "literal"
            parsed = literals.parse_datetime_literal(node.this.this.strip() if is_literal else node.this.this, to.kind)
            if parsed is not None and not is_try:
                return parsed if is_literal else parsed.with_name(_format_cast_name("CAST", value, to))
            if is_literal:
                return TypedExpression(cast_like_spark(value, to), to, None)
        return TypedExpression(
            cast_like_spark(value, to, is_try=is_try),
            to,
            _format_cast_name("TRY_CAST" if is_try else "CAST", value, to),
        )

    def _concat(self, node: exp.DPipe, scope: QueryScope) -> TypedExpression:
        left, right = self._translate_operands(node, scope)
        spark_name = None
        if left.name is not None and right.name is not None:
            spark_name = f"concat({left.name}, {right.name})"
        return TypedExpression(strings.concat_strings([left, right]), SparkType("string"), spark_name)

    def _escape(self, node: exp.Escape, scope: QueryScope) -> TypedExpression:
        if not isinstance(node.this, exp.Like):
            raise Untranslatable("this use of ESCAPE")
        escape = node.expression.name
        if len(escape) != 1 or escape in "%_":
            raise Untranslatable(f"ESCAPE with {escape!r}")
        return self._like(node.this, scope, escape)

    def _like(self, node: exp.Like, scope: QueryScope, escape: str) -> TypedExpression:
        result = strings.translate_like(*self._translate_operands(node, scope), escape)
        if not node.args.get("negate"):
            return result
        return TypedExpression(f"(NOT {result.sql})", BOOLEAN, None if result.name is None else f"(NOT {result.name})")

    def _bracket(self, node: exp.Bracket, scope: QueryScope) -> TypedExpression:
        if len(node.expressions) != 1:
            raise Untranslatable("a slice of an array")
        return collections.get_item(self.translate(node.this, scope), self.translate(node.expressions[0], scope))

    def _substring(self, node: exp.Substring, scope: QueryScope) -> TypedExpression:
        function_name = str(node.meta[SPELLING_KEY])
        nodes = [node.args[key] for key in ("this", "start", "length") if node.args.get(key) is not None]
        return SCALAR_FUNCTIONS["substring"](FunctionCall(function_name, tuple(nodes), scope, self))

    def _trim(self, node: exp.Trim, scope: QueryScope) -> TypedExpression:
        position = (node.args.get("position") or "").upper()
        trim_characters = node.args.get("expression")
        if not position and trim_characters is None:
            return SCALAR_FUNCTIONS["trim"](FunctionCall("trim", (node.this,), scope, self))
        if (
            not position
            or trim_characters is None
            or not (isinstance(trim_characters, exp.Literal) and trim_characters.is_string and trim_characters.this)
        ):
            raise Untranslatable("this form of TRIM")
        value = self.translate(node.this, scope)
        if value.type.kind != "string":
            raise Untranslatable(f"TRIM of {value.type}")
        function = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[position]
        spark_name = None if value.name is None else f"TRIM({position} {trim_characters.this} FROM {value.name})"
        return TypedExpression(
            f"{function}({value.sql}, {literals.translate_literal(trim_characters).sql})", value.type, spark_name
        )

    def _position(self, node: exp.StrPosition, scope: QueryScope) -> TypedExpression:
        if node.args.get("position") or node.args.get("occurrence"):
            raise Untranslatable("POSITION with a start or an occurrence")
        nodes = (node.args["substr"], node.this)
        return SCALAR_FUNCTIONS["locate"](FunctionCall("locate", nodes, scope, self))


def _format_cast_name(function: str, value: TypedExpression, to: SparkType) -> str | None:
    return None if value.name is None or not to.is_atomic else f"{function}({value.name} AS {str(to).upper()})"


def _parse_type(node: exp.DataType) -> SparkType:
    try:
        return parse_spark_type(node.sql("spark").replace(" ", "").lower())
    except Exception as error:
        raise Untranslatable(f"the type {node.sql('spark')}") from error
