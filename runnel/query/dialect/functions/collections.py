"""Rules for functions on arrays, maps and structs."""

from sqlglot import exp

from runnel.declare.model.column_types import SparkType, array_type, struct_type
from runnel.query.data_types import BOOLEAN, INT, STRING, quote_identifier
from runnel.query.dialect.functions.registry import (
    FunctionCall,
    require_int_literal,
    require_kind,
    require_string_literal,
    rule,
)
from runnel.query.dialect.operators import require_condition, unify_types
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.typed_expression import (
    TypedExpression,
    Untranslatable,
    cast,
    fail_with,
    format_call_name,
    hide_statistics,
    quote_string,
)


def _element_type(value: TypedExpression) -> SparkType:
    require_kind(value, "array")
    return value.type.children[0].type


def _orderable_element_type(value: TypedExpression) -> SparkType:
    element = _element_type(value)
    if not element.is_atomic:
        raise Untranslatable(f"an order of {element}")
    return element


@rule("array")
def _make_array(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 999)
    sqls, to = unify_types(values)
    return call.result(f"list_value({', '.join(sqls)})", array_type(to), *values)


@rule("named_struct")
def _named_struct(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 199)
    names = [require_string_literal(name, "a field name") for name in values[::2]]
    if len({name.lower() for name in names}) != len(values[1::2]):
        raise Untranslatable("fields of one name")
    fields = (f"{quote_identifier(name)} := {_require_type(v)}" for name, v in zip(names, values[1::2], strict=True))
    to = struct_type(zip(names, (value.type for value in values[1::2]), strict=True))
    return call.result(f"struct_pack({', '.join(fields)})", to, *values)


def _require_type(value: TypedExpression) -> str:
    if value.is_null:
        raise Untranslatable("a field without a type")
    return value.sql


@rule("size", "cardinality", "array_size")
def _size(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = "cardinality" if value.type.kind == "map" else "len"
    return call.result(cast(f"{function}({require_kind(value, 'array', 'map')})", INT), INT, value)


@rule("array_contains")
def _array_contains(call: FunctionCall) -> TypedExpression:
    values, searched = call.translate_arguments(2)
    element = _orderable_element_type(values)
    if searched.type != element or element.is_floating:
        raise Untranslatable("array_contains of another type")
    sql = (
        f"(CASE WHEN {searched.sql} IS NULL THEN NULL WHEN list_contains({values.sql}, {searched.sql}) THEN TRUE "
        f"WHEN list_count({values.sql}) < len({values.sql}) THEN NULL WHEN {values.sql} IS NOT NULL THEN FALSE END)"
    )
    return call.result(sql, BOOLEAN, values, searched)


@rule("element_at")
def _element_at(call: FunctionCall) -> TypedExpression:
    holder, key = call.translate_arguments(2)
    if holder.type.kind == "map":
        return call.result(_map_value_sql(holder, key), holder.type.children[1].type, holder, key)
    position = require_int_literal(key, "a position")
    if position == 0:
        raise Untranslatable("position 0")
    sql = _array_element_sql(holder, abs(position), position)
    return call.result(sql, _element_type(holder), holder, key)


def get_item(holder: TypedExpression, key: TypedExpression) -> TypedExpression:
    """Return `holder[key]`: an array's element counted from 0, or a map's value."""
    spark_name = None if None in (holder.name, key.name) else f"{holder.name}[{key.name}]"
    if holder.type.kind == "map":
        return TypedExpression(_map_value_sql(holder, key), holder.type.children[1].type, spark_name)
    position = require_int_literal(key, "a position")
    if position < 0:
        raise Untranslatable("a negative position")
    return TypedExpression(_array_element_sql(holder, position + 1, position + 1), _element_type(holder), spark_name)


def _array_element_sql(holder: TypedExpression, min_length: int, position: int) -> str:
    element = hide_statistics(f"{holder.sql}[{position}]", _element_type(holder))
    return f"(CASE WHEN len({holder.sql}) < {min_length} THEN {fail_with('no such element')} ELSE {element} END)"


def _map_value_sql(holder: TypedExpression, key: TypedExpression) -> str:
    if key.type != holder.type.children[0].type or key.type.is_floating or not key.type.is_atomic:
        raise Untranslatable("a map's value by a key of another type")
    return hide_statistics(f"{holder.sql}[{key.sql}]", holder.type.children[1].type)


@rule("map_keys", "map_values")
def _map_keys_values(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    require_kind(value, "map")
    part = value.type.children[call.name == "map_values"]
    return call.result(f"{call.name}({value.sql})", array_type(part.type), value)


@rule("sort_array")
def _sort_array(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 2)
    ascending = True if len(values) == 1 else values[1].literal
    if not isinstance(ascending, bool):
        raise Untranslatable("an order that is not a literal")
    _orderable_element_type(values[0])
    order = "'ASC', 'NULLS FIRST'" if ascending else "'DESC', 'NULLS LAST'"
    sql = f"list_sort({values[0].sql}, {order})"
    return call.result(sql, values[0].type, values[0], "true" if ascending else "false")


@rule("array_max", "array_min")
def _array_min_max(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    element = _orderable_element_type(value)
    if element.is_floating:
        raise Untranslatable(f"{call.name} of doubles")
    return call.result(f"list_{call.name[6:]}({value.sql})", element, value)


@rule("array_join")
def _array_join(call: FunctionCall) -> TypedExpression:
    value, separator = call.translate_arguments(2)
    if _element_type(value).kind != "string":
        raise Untranslatable(f"array_join of {value.type}")
    sql = f"array_to_string({value.sql}, {quote_string(require_string_literal(separator, 'a separator'))})"
    return call.result(f"(CASE WHEN {value.sql} IS NOT NULL THEN coalesce({sql}, '') END)", STRING, value, separator)


@rule("transform", "filter")
def _transform_filter(call: FunctionCall) -> TypedExpression:
    if (
        len(call.argument_nodes) != 2
        or not isinstance(call.argument_nodes[1], exp.Lambda)
        or len(call.argument_nodes[1].expressions) != 1
    ):
        raise Untranslatable(f"{call.name} with this function")
    values = call.translator.translate(call.argument_nodes[0], call.scope)
    element = _element_type(values)
    variable = call.argument_nodes[1].expressions[0].name
    lambda_variable = quote_identifier(call.translator.new_name("x"))
    element_value = TypedExpression(hide_statistics(lambda_variable, element), element, "namedlambdavariable()")
    scope = QueryScope(outer=call.scope, variables={variable.lower(): element_value})
    body = call.translator.translate(call.argument_nodes[1].this, scope)
    name = format_call_name("lambdafunction", body, "namedlambdavariable()")
    spark_name = format_call_name(call.name, values, name) if name else None
    if call.name == "filter":
        return TypedExpression(
            f"list_filter({values.sql}, lambda {lambda_variable}: {require_condition(body)})", values.type, spark_name
        )
    return TypedExpression(
        f"list_transform({values.sql}, lambda {lambda_variable}: {body.sql})", array_type(body.type), spark_name
    )
