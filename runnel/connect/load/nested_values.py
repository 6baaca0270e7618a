"""Fit what is inside a nested value to the types inside an array, a struct or a map, leaf by leaf. Pure."""

from collections.abc import Iterator

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType, UnknownType

from runnel.connect.files.text_values import rule
from runnel.connect.iceberg_types import NO_ID, fits, known
from runnel.lake.scan.duckdb_types import literal


class Unfit(Exception):
    """The value has another shape than the type."""


def leaves_fit(sql: str, source: IcebergType, kind: IcebergType) -> str | None:
    """Return the SQL of whether every leaf of a JSON value is one of its type; None where all are.

    Raises Unfit where the shapes differ: an array here, a struct there.
    """
    conditions = []
    for path, leaf in _leaves(source, kind, "$"):
        way = rule("leaf", leaf)
        if way is None or way.valid is None:
            continue
        found = f"json_extract_string({sql}, {literal(path)})"
        many = found if "*" in path else f"[{found}]"
        conditions.append(f"len(list_filter({many}, lambda leaf : {way.bad})) = 0")
    return " AND ".join(conditions) or None


def shape_fits(value: str, kind: IcebergType, *, drops: bool, depth: int = 0) -> str:
    """Return the SQL of whether a JSON value is one of a type, whatever other rows have there. Null always is.

    A field of an object that a struct lacks makes it another shape, unless it `drops` such fields. Raises Unfit for a
    type that no JSON value is of.
    """
    name = f"e{depth}"
    if isinstance(kind, StructType):
        inside = [
            _all_fit(f"[json_extract({name}, {literal(f'$.{_key(field.name)}')})]", field.field_type, drops, depth)
            for field in kind.fields
        ]
        names = ", ".join(literal(field.name) for field in kind.fields)
        extra = f"len(list_filter(json_keys({name}), lambda k{depth} : k{depth} NOT IN ({names}))) = 0"
        is_one = " AND ".join([f"json_type({name}) = 'OBJECT'", *inside, *([] if drops else [extra])])
    elif isinstance(kind, ListType):
        every = _all_fit(f"json_extract({name}, '$[*]')", kind.element_type, drops, depth)
        is_one = f"json_type({name}) = 'ARRAY' AND {every}"
    elif isinstance(kind, MapType) and isinstance(kind.key_type, StringType):
        every = _all_fit(f"json_extract({name}, '$.*')", kind.value_type, drops, depth)
        is_one = f"json_type({name}) = 'OBJECT' AND {every}"
    else:
        way = rule(f"json_extract_string({name}, '$')", kind)
        if way is None:
            raise Unfit
        is_one = f"NOT {way.bad}" if way.bad else "true"
    is_null = f"{name} IS NULL OR json_type({name}) = 'NULL'"
    return f"len(list_filter({value}, lambda {name} : NOT ({is_null} OR ({is_one})))) = 0"


def _all_fit(values: str, kind: IcebergType, drops: bool, depth: int) -> str:
    return shape_fits(values, kind, drops=drops, depth=depth + 1)


def grown(kind: IcebergType, source: IcebergType) -> IcebergType:
    """Return a type with the fields that its structs lack and that a source has there.

    >>> from runnel.connect.iceberg_types import struct_of
    >>> one, other = struct_of({"a": StringType()}), struct_of({"b": StringType()})
    >>> [field.name for field in grown(one, other).fields]
    ['a', 'b']
    """
    if isinstance(kind, StructType) and isinstance(source, StructType):
        found = {field.name: field.field_type for field in source.fields}
        fields = [_grown_field(field, found[field.name]) if field.name in found else field for field in kind.fields]
        there = {field.name for field in kind.fields}
        new = [NestedField(NO_ID, name, known(of), required=False) for name, of in found.items() if name not in there]
        return StructType(*fields, *new)
    if isinstance(kind, ListType) and isinstance(source, ListType):
        return ListType(kind.element_id, grown(kind.element_type, source.element_type), kind.element_required)
    if isinstance(kind, MapType):
        value = kind.value_type
        for of in _values(source):
            value = grown(value, of)
        return MapType(kind.key_id, kind.key_type, kind.value_id, value, kind.value_required)
    return kind


def _grown_field(field: NestedField, source: IcebergType) -> NestedField:
    kind = grown(field.field_type, source)
    return NestedField(field.field_id, field.name, kind, required=field.required, doc=field.doc)


def _values(source: IcebergType) -> Iterator[IcebergType]:
    """Yield the types of the values of a map, which JSON does not tell from a struct."""
    if isinstance(source, StructType):
        yield from (field.field_type for field in source.fields)
    elif isinstance(source, MapType):
        yield source.value_type


def new_fields(kind: IcebergType, source: IcebergType, path: str) -> Iterator[str]:
    """Yield the fields, by their path, that `grown` adds."""
    if isinstance(kind, StructType) and isinstance(source, StructType):
        there = {field.name: field.field_type for field in kind.fields}
        for field in source.fields:
            if field.name not in there:
                yield f"{path}.{field.name}"
            else:
                yield from new_fields(there[field.name], field.field_type, f"{path}.{field.name}")
    elif isinstance(kind, ListType) and isinstance(source, ListType):
        yield from new_fields(kind.element_type, source.element_type, path)
    elif isinstance(kind, MapType):
        for of in _values(source):
            yield from new_fields(kind.value_type, of, path)


def converts(source: IcebergType, kind: IcebergType, *, drops: bool) -> bool:
    """Tell whether every value of a nested type can be stored as another, fields matched by name; no look at values.

    Fields that the source lacks are null; those that the target lacks stand against it, unless it `drops` them.
    """
    if isinstance(source, StructType) and isinstance(kind, StructType):
        found = {field.name: field.field_type for field in kind.fields}
        shared = [field for field in source.fields if field.name in found]
        is_whole = drops or len(shared) == len(source.fields)
        return (
            bool(shared) and is_whole and all(converts(one.field_type, found[one.name], drops=drops) for one in shared)
        )
    if isinstance(source, ListType) and isinstance(kind, ListType):
        return converts(source.element_type, kind.element_type, drops=drops)
    if isinstance(source, MapType) and isinstance(kind, MapType):
        return source.key_type == kind.key_type and converts(source.value_type, kind.value_type, drops=drops)
    return source.is_primitive and kind.is_primitive and fits(source, kind)


def _leaves(source: IcebergType, kind: IcebergType, path: str) -> Iterator[tuple[str, IcebergType]]:
    """Yield the paths at which a value is not of its type already, with the type."""
    if isinstance(source, UnknownType) or fits(source, kind):
        return
    if isinstance(kind, ListType) and isinstance(source, ListType):
        yield from _leaves(source.element_type, kind.element_type, f"{path}[*]")
    elif isinstance(kind, StructType) and isinstance(source, StructType):
        wanted = {field.name: field.field_type for field in kind.fields}
        for field in source.fields:
            if field.name not in wanted:
                raise Unfit
            yield from _leaves(field.field_type, wanted[field.name], f"{path}.{_key(field.name)}")
    elif isinstance(kind, MapType) and isinstance(source, StructType) and isinstance(kind.key_type, StringType):
        for field in source.fields:
            yield from _leaves(field.field_type, kind.value_type, f"{path}.{_key(field.name)}")
    elif kind.is_primitive and source.is_primitive and rule("leaf", kind) is not None:
        yield path, kind
    else:
        raise Unfit


def _key(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
