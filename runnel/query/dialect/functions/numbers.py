"""Functions on numbers, and those that choose among values."""

from runnel.query.data_types import BIGINT, BOOLEAN, DOUBLE, decimal
from runnel.query.dialect.decimals import adjusted
from runnel.query.dialect.functions.registry import Call, literal_int, rule, want
from runnel.query.dialect.operators import arithmetic, comparable, condition, negated, unified
from runnel.query.dialect.typed_expression import Refused, Value, cast, converted

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@rule("abs")
def _absolute(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(f"abs({want(value, *_NUMBERS)})", value.type, value)


@rule("negative")
def _negative(call: Call) -> Value:
    (value,) = call.values(1)
    return negated(value).named(f"negative({value.name})")


@rule("positive")
def _positive(call: Call) -> Value:
    (value,) = call.values(1)
    want(value, *_NUMBERS)
    return Value(value.sql, value.type, None if value.name is None else f"(+ {value.name})")


@rule("sign", "signum")
def _sign(call: Call) -> Value:
    (value,) = call.values(1)
    if value.type.floating:
        raise Refused("the sign of a double")
    name = {"sign": "sign", "signum": "SIGNUM"}[call.name]
    return call.result(f"CAST(sign({want(value, *_NUMBERS)}) AS DOUBLE)", DOUBLE, value, name=name)


@rule("sqrt")
def _sqrt(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(f"sqrt({converted(value, DOUBLE)})", DOUBLE, value, name="SQRT")


@rule("ceil", "ceiling", "floor")
def _whole(call: Call) -> Value:
    (value,) = call.values(1)
    function = "floor" if call.name == "floor" else "ceil"
    name = {"ceil": "CEIL", "floor": "FLOOR"}.get(call.name, call.name)
    if value.type.integral:
        return call.result(cast(value.sql, BIGINT), BIGINT, value, name=name)
    sql = f"{function}({want(value, 'double', 'decimal')})"
    if value.type.kind == "double":
        return call.result(cast(sql, BIGINT), BIGINT, value, name=name)
    to = adjusted(value.type.precision - value.type.scale + 1, 0)
    return call.result(cast(sql, to), to, value, name=name)


@rule("round")
def _rounded(call: Call) -> Value:
    values = call.values(1, 2)
    value = values[0]
    places = literal_int(values[1], "a number of places") if len(values) == 2 else 0
    shown = (value, str(places))
    if places < 0:
        raise Refused("round to tens")
    if value.type.integral:
        return call.result(value.sql, value.type, *shown)
    have = value.type
    if have.kind != "decimal" or have.precision == 38:
        raise Refused(f"round of {have}")
    scale = min(places, have.scale)
    to = decimal(have.precision - have.scale + 1 + scale, scale)
    return call.result(cast(value.sql, to), to, *shown)


@rule("mod")
def _modulo(call: Call) -> Value:
    left, right = call.values(2)
    found = arithmetic("%", left, right)
    return found.named(f"mod({left.name}, {right.name})")


@rule("pmod")
def _positive_modulo(call: Call) -> Value:
    left, right = call.values(2)
    if not (left.type.integral and right.type.integral):
        raise Refused("pmod of these")
    (a, b), to = unified([left, right])
    return call.result(f"(CASE WHEN {a} % {b} < 0 THEN ({a} % {b} + {b}) % {b} ELSE {a} % {b} END)", to, left, right)


@rule("try_divide")
def _try_divide(call: Call) -> Value:
    left, right = call.values(2)
    if not (left.type.integral or left.type.kind == "double") or not (
        right.type.integral or right.type.kind == "double"
    ):
        raise Refused("try_divide of these")
    sql = f"({converted(left, DOUBLE)} / {converted(right, DOUBLE)})"
    return call.result(f"(CASE WHEN {right.sql} = 0 THEN NULL ELSE {sql} END)", DOUBLE, left, right)


@rule("greatest", "least")
def _extreme(call: Call) -> Value:
    values = call.values(2, 99)
    sqls, to = unified(values)
    if not to.atomic:
        raise Refused(f"{call.name} of {to}")
    return call.result(f"{call.name}({', '.join(sqls)})", to, *values)


@rule("coalesce", "nvl", "ifnull")
def _coalesce(call: Call) -> Value:
    values = call.values(1, 99)
    sqls, to = unified(values)
    return call.result(f"coalesce({', '.join(sqls)})", to, *values)


@rule("nullif")
def _nullif(call: Call) -> Value:
    left, right = call.values(2)
    a, b = comparable([left, right])
    return call.result(f"(CASE WHEN {a} = {b} THEN NULL ELSE {left.sql} END)", left.type, left, right)


@rule("nvl2")
def _nvl2(call: Call) -> Value:
    subject, there, missing = call.values(3)
    (a, b), to = unified([there, missing])
    sql = f"(CASE WHEN {subject.sql} IS NOT NULL THEN {a} ELSE {b} END)"
    return call.result(sql, to, subject, there, missing)


@rule("if")
def _choose(call: Call) -> Value:
    test, yes, no = call.values(3)
    (a, b), to = unified([yes, no])
    name = f"(IF({test.name}, {yes.name}, {no.name}))"
    known = None not in (test.name, yes.name, no.name)
    return Value(f"(CASE WHEN {condition(test)} THEN {a} ELSE {b} END)", to, name if known else None)


@rule("isnull", "isnotnull")
def _is_null(call: Call) -> Value:
    (value,) = call.values(1)
    words = "IS NULL" if call.name == "isnull" else "IS NOT NULL"
    return Value(f"({value.sql} {words})", BOOLEAN, None if value.name is None else f"({value.name} {words})")


@rule("isnan")
def _is_nan(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(f"coalesce(isnan({want(value, 'double', 'float')}), FALSE)", BOOLEAN, value)


@rule("equal_null")
def _equal_null(call: Call) -> Value:
    left, right = call.values(2)
    a, b = comparable([left, right])
    return call.result(f"({a} IS NOT DISTINCT FROM {b})", BOOLEAN, left, right)


@rule("bigint", "int", "smallint", "tinyint", "double", "boolean", "string", "date", "timestamp")
def _cast_by_name(call: Call) -> Value:
    from runnel.query.data_types import spark_type
    from runnel.query.dialect.casts import cast_to

    (value,) = call.values(1)
    return Value(cast_to(value, spark_type(call.name)), spark_type(call.name), value.name)
