"""Functions on arrays, maps and structs."""

from sqlglot import exp

from runnel.query.data_types import BOOLEAN, INT, STRING, DataType, array, quoted
from runnel.query.dialect.functions.registry import Call, literal_int, literal_text, rule, want
from runnel.query.dialect.operators import condition, unified
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.typed_expression import Refused, Value, call_name, cast, failing, stored, text


def _element(value: Value) -> DataType:
    want(value, "array")
    return value.type.children[0]


def _orderable(value: Value) -> DataType:
    element = _element(value)
    if not element.atomic:
        raise Refused(f"an order of {element}")
    return element


@rule("array")
def _make_array(call: Call) -> Value:
    values = call.values(1, 999)
    sqls, to = unified(values)
    return call.result(f"list_value({', '.join(sqls)})", array(to), *values)


@rule("named_struct")
def _named_struct(call: Call) -> Value:
    values = call.values(2, 199)
    names = [literal_text(name, "a field name") for name in values[::2]]
    if len({name.lower() for name in names}) != len(values[1::2]):
        raise Refused("fields of one name")
    fields = (f"{quoted(name)} := {_typed(v)}" for name, v in zip(names, values[1::2], strict=True))
    to = DataType("struct", children=tuple(v.type for v in values[1::2]), names=tuple(names))
    return call.result(f"struct_pack({', '.join(fields)})", to, *values)


def _typed(value: Value) -> str:
    if value.is_null:
        raise Refused("a field without a type")
    return value.sql


@rule("size", "cardinality", "array_size")
def _size(call: Call) -> Value:
    (value,) = call.values(1)
    function = "cardinality" if value.type.kind == "map" else "len"
    return call.result(cast(f"{function}({want(value, 'array', 'map')})", INT), INT, value)


@rule("array_contains")
def _array_contains(call: Call) -> Value:
    values, wanted = call.values(2)
    element = _orderable(values)
    if wanted.type != element or element.floating:
        raise Refused("array_contains of another type")
    sql = (
        f"(CASE WHEN {wanted.sql} IS NULL THEN NULL WHEN list_contains({values.sql}, {wanted.sql}) THEN TRUE "
        f"WHEN list_count({values.sql}) < len({values.sql}) THEN NULL WHEN {values.sql} IS NOT NULL THEN FALSE END)"
    )
    return call.result(sql, BOOLEAN, values, wanted)


@rule("element_at")
def _element_at(call: Call) -> Value:
    holder, key = call.values(2)
    if holder.type.kind == "map":
        return call.result(_entry(holder, key), holder.type.children[1], holder, key)
    position = literal_int(key, "a position")
    if position == 0:
        raise Refused("position 0")
    sql = _at(holder, abs(position), position)
    return call.result(sql, _element(holder), holder, key)


def item(holder: Value, key: Value) -> Value:
    """Return `holder[key]`: an array's element counted from 0, or a map's value."""
    own = None if None in (holder.name, key.name) else f"{holder.name}[{key.name}]"
    if holder.type.kind == "map":
        return Value(_entry(holder, key), holder.type.children[1], own)
    position = literal_int(key, "a position")
    if position < 0:
        raise Refused("a negative position")
    return Value(_at(holder, position + 1, position + 1), _element(holder), own)


def _at(holder: Value, least: int, position: int) -> str:
    element = stored(f"{holder.sql}[{position}]", _element(holder))
    return f"(CASE WHEN len({holder.sql}) < {least} THEN {failing('no such element')} ELSE {element} END)"


def _entry(holder: Value, key: Value) -> str:
    if key.type != holder.type.children[0] or key.type.floating or not key.type.atomic:
        raise Refused("a map's value by a key of another type")
    return stored(f"{holder.sql}[{key.sql}]", holder.type.children[1])


@rule("map_keys", "map_values")
def _entries(call: Call) -> Value:
    (value,) = call.values(1)
    want(value, "map")
    return call.result(f"{call.name}({value.sql})", array(value.type.children[call.name == "map_values"]), value)


@rule("sort_array")
def _sort_array(call: Call) -> Value:
    values = call.values(1, 2)
    ascending = True if len(values) == 1 else values[1].literal
    if not isinstance(ascending, bool):
        raise Refused("an order that is not a literal")
    _orderable(values[0])
    order = "'ASC', 'NULLS FIRST'" if ascending else "'DESC', 'NULLS LAST'"
    sql = f"list_sort({values[0].sql}, {order})"
    return call.result(sql, values[0].type, values[0], "true" if ascending else "false")


@rule("array_max", "array_min")
def _array_extreme(call: Call) -> Value:
    (value,) = call.values(1)
    element = _orderable(value)
    if element.floating:
        raise Refused(f"{call.name} of doubles")
    return call.result(f"list_{call.name[6:]}({value.sql})", element, value)


@rule("array_join")
def _array_join(call: Call) -> Value:
    value, separator = call.values(2)
    if _element(value).kind != "string":
        raise Refused("array_join of these")
    sql = f"array_to_string({value.sql}, {text(literal_text(separator, 'a separator'))})"
    return call.result(f"(CASE WHEN {value.sql} IS NOT NULL THEN coalesce({sql}, '') END)", STRING, value, separator)


@rule("transform", "filter")
def _over_elements(call: Call) -> Value:
    if len(call.nodes) != 2 or not isinstance(call.nodes[1], exp.Lambda) or len(call.nodes[1].expressions) != 1:
        raise Refused(f"{call.name} with such a function")
    values = call.expressions.value(call.nodes[0], call.scope)
    element = _element(values)
    variable = call.nodes[1].expressions[0].name
    inner = quoted(call.expressions.fresh("x"))
    element_value = Value(stored(inner, element), element, "namedlambdavariable()")
    scope = Scope(outer=call.scope, variables={variable.lower(): element_value})
    body = call.expressions.value(call.nodes[1].this, scope)
    name = call_name("lambdafunction", body, "namedlambdavariable()")
    own = call_name(call.name, values, name) if name else None
    if call.name == "filter":
        return Value(f"list_filter({values.sql}, lambda {inner}: {condition(body)})", values.type, own)
    return Value(f"list_transform({values.sql}, lambda {inner}: {body.sql})", array(body.type), own)
