"""Rules for functions on numbers, and for conditional functions such as coalesce and if."""

from runnel.declare.model.column_types import decimal
from runnel.query.data_types import BIGINT, BOOLEAN, DOUBLE
from runnel.query.dialect.decimals import limit_precision
from runnel.query.dialect.functions.registry import FunctionCall, require_int_literal, require_kind, rule
from runnel.query.dialect.operators import (
    convert_for_comparison,
    negate,
    require_condition,
    translate_arithmetic,
    unify_types,
)
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, cast, cast_implicitly

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@rule("abs")
def _absolute(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(f"abs({require_kind(value, *_NUMBERS)})", value.type, value)


@rule("negative")
def _negative(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return negate(value).with_name(f"negative({value.name})")


@rule("positive")
def _positive(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    require_kind(value, *_NUMBERS)
    return TypedExpression(value.sql, value.type, None if value.name is None else f"(+ {value.name})")


@rule("sign", "signum")
def _sign(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    if value.type.is_floating:
        raise Untranslatable("the sign of a double")
    name = {"sign": "sign", "signum": "SIGNUM"}[call.name]
    return call.result(f"CAST(sign({require_kind(value, *_NUMBERS)}) AS DOUBLE)", DOUBLE, value, name=name)


@rule("sqrt")
def _sqrt(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(f"sqrt({cast_implicitly(value, DOUBLE)})", DOUBLE, value, name="SQRT")


@rule("ceil", "ceiling", "floor")
def _ceil_floor(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = "floor" if call.name == "floor" else "ceil"
    name = {"ceil": "CEIL", "floor": "FLOOR"}.get(call.name, call.name)
    if value.type.is_integral:
        return call.result(cast(value.sql, BIGINT), BIGINT, value, name=name)
    sql = f"{function}({require_kind(value, 'double', 'decimal')})"
    if value.type.kind == "double":
        return call.result(cast(sql, BIGINT), BIGINT, value, name=name)
    to = limit_precision(value.type.precision - value.type.scale + 1, 0)
    return call.result(cast(sql, to), to, value, name=name)


@rule("round")
def _round(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 2)
    value = values[0]
    places = require_int_literal(values[1], "a number of places") if len(values) == 2 else 0
    name_arguments = (value, str(places))
    if places < 0:
        raise Untranslatable("round to a negative number of places")
    if value.type.is_integral:
        return call.result(value.sql, value.type, *name_arguments)
    source_type = value.type
    if source_type.kind != "decimal" or source_type.precision == 38:
        raise Untranslatable(f"round of {source_type}")
    scale = min(places, source_type.scale)
    to = decimal(source_type.precision - source_type.scale + 1 + scale, scale)
    return call.result(cast(value.sql, to), to, *name_arguments)


@rule("mod")
def _modulo(call: FunctionCall) -> TypedExpression:
    left, right = call.translate_arguments(2)
    result = translate_arithmetic("%", left, right)
    return result.with_name(f"mod({left.name}, {right.name})")


@rule("pmod")
def _positive_modulo(call: FunctionCall) -> TypedExpression:
    left, right = call.translate_arguments(2)
    if not (left.type.is_integral and right.type.is_integral):
        raise Untranslatable(f"pmod of {left.type} and {right.type}")
    (a, b), to = unify_types([left, right])
    return call.result(f"(CASE WHEN {a} % {b} < 0 THEN ({a} % {b} + {b}) % {b} ELSE {a} % {b} END)", to, left, right)


@rule("try_divide")
def _try_divide(call: FunctionCall) -> TypedExpression:
    left, right = call.translate_arguments(2)
    if not (left.type.is_integral or left.type.kind == "double") or not (
        right.type.is_integral or right.type.kind == "double"
    ):
        raise Untranslatable(f"try_divide of {left.type} and {right.type}")
    sql = f"({cast_implicitly(left, DOUBLE)} / {cast_implicitly(right, DOUBLE)})"
    return call.result(f"(CASE WHEN {right.sql} = 0 THEN NULL ELSE {sql} END)", DOUBLE, left, right)


@rule("greatest", "least")
def _greatest_least(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 99)
    sqls, to = unify_types(values)
    if not to.is_atomic:
        raise Untranslatable(f"{call.name} of {to}")
    return call.result(f"{call.name}({', '.join(sqls)})", to, *values)


@rule("coalesce", "nvl", "ifnull")
def _coalesce(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 99)
    sqls, to = unify_types(values)
    return call.result(f"coalesce({', '.join(sqls)})", to, *values)


@rule("nullif")
def _nullif(call: FunctionCall) -> TypedExpression:
    left, right = call.translate_arguments(2)
    a, b = convert_for_comparison([left, right])
    return call.result(f"(CASE WHEN {a} = {b} THEN NULL ELSE {left.sql} END)", left.type, left, right)


@rule("nvl2")
def _nvl2(call: FunctionCall) -> TypedExpression:
    subject, if_not_null, if_null = call.translate_arguments(3)
    (a, b), to = unify_types([if_not_null, if_null])
    sql = f"(CASE WHEN {subject.sql} IS NOT NULL THEN {a} ELSE {b} END)"
    return call.result(sql, to, subject, if_not_null, if_null)


@rule("if")
def _if(call: FunctionCall) -> TypedExpression:
    test, yes, no = call.translate_arguments(3)
    (a, b), to = unify_types([yes, no])
    name = f"(IF({test.name}, {yes.name}, {no.name}))"
    has_name = None not in (test.name, yes.name, no.name)
    return TypedExpression(
        f"(CASE WHEN {require_condition(test)} THEN {a} ELSE {b} END)", to, name if has_name else None
    )


@rule("isnull", "isnotnull")
def _is_null(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    predicate = "IS NULL" if call.name == "isnull" else "IS NOT NULL"
    return TypedExpression(
        f"({value.sql} {predicate})", BOOLEAN, None if value.name is None else f"({value.name} {predicate})"
    )


@rule("isnan")
def _is_nan(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(f"coalesce(isnan({require_kind(value, 'double', 'float')}), FALSE)", BOOLEAN, value)


@rule("equal_null")
def _equal_null(call: FunctionCall) -> TypedExpression:
    left, right = call.translate_arguments(2)
    a, b = convert_for_comparison([left, right])
    return call.result(f"({a} IS NOT DISTINCT FROM {b})", BOOLEAN, left, right)


@rule("bigint", "int", "smallint", "tinyint", "double", "boolean", "string", "date", "timestamp")
def _cast_by_name(call: FunctionCall) -> TypedExpression:
    from runnel.query.data_types import parse_spark_type
    from runnel.query.dialect.casts import cast_like_spark

    (value,) = call.translate_arguments(1)
    return TypedExpression(cast_like_spark(value, parse_spark_type(call.name)), parse_spark_type(call.name), value.name)
