"""Check and convert nested values (arrays, structs, maps) leaf by leaf. Pure."""

from collections.abc import Iterator

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType, UnknownType

from runnel.connect.files.text_values import build_conversion
from runnel.connect.iceberg_types import NO_ID, is_storable_as, replace_unknown_types
from runnel.lake.scan.duckdb_types import quote_literal


class ShapeMismatch(Exception):
    """The value does not have the shape of the type."""


def build_leaf_check(sql: str, source: IcebergType, kind: IcebergType) -> str | None:
    """Return SQL that tells whether every leaf of a JSON value fits its type; None if all are known to fit.

    Raises ShapeMismatch if the shapes differ, such as an array and a struct.
    """
    conditions = []
    for path, leaf in _iterate_leaves(source, kind, "$"):
        conversion = build_conversion("leaf", leaf)
        if conversion is None or conversion.valid is None:
            continue
        leaf_sql = f"json_extract_string({sql}, {quote_literal(path)})"
        leaf_list = leaf_sql if "*" in path else f"[{leaf_sql}]"
        conditions.append(f"len(list_filter({leaf_list}, lambda leaf : {conversion.bad_sql})) = 0")
    return " AND ".join(conditions) or None


def build_shape_check(value: str, kind: IcebergType, *, drops: bool, depth: int = 0) -> str:
    """Return SQL that tells whether a JSON value has the shape of a type, regardless of other rows. Null always fits.

    An object with a field that the struct lacks does not fit, unless `drops` leaves such fields out. Raises
    ShapeMismatch for a type that no JSON value can have.
    """
    name = f"e{depth}"
    if isinstance(kind, StructType):
        field_checks = [
            _build_elements_check(
                f"[json_extract({name}, {quote_literal(f'$.{_quote_key(field.name)}')})]",
                field.field_type,
                drops,
                depth,
            )
            for field in kind.fields
        ]
        names = ", ".join(quote_literal(field.name) for field in kind.fields)
        extra_keys_check = f"len(list_filter(json_keys({name}), lambda k{depth} : k{depth} NOT IN ({names}))) = 0"
        is_of_type = " AND ".join(
            [f"json_type({name}) = 'OBJECT'", *field_checks, *([] if drops else [extra_keys_check])]
        )
    elif isinstance(kind, ListType):
        elements_check = _build_elements_check(f"json_extract({name}, '$[*]')", kind.element_type, drops, depth)
        is_of_type = f"json_type({name}) = 'ARRAY' AND {elements_check}"
    elif isinstance(kind, MapType) and isinstance(kind.key_type, StringType):
        elements_check = _build_elements_check(f"json_extract({name}, '$.*')", kind.value_type, drops, depth)
        is_of_type = f"json_type({name}) = 'OBJECT' AND {elements_check}"
    else:
        conversion = build_conversion(f"json_extract_string({name}, '$')", kind)
        if conversion is None:
            raise ShapeMismatch
        is_of_type = f"NOT {conversion.bad_sql}" if conversion.bad_sql else "true"
    is_null = f"{name} IS NULL OR json_type({name}) = 'NULL'"
    return f"len(list_filter({value}, lambda {name} : NOT ({is_null} OR ({is_of_type})))) = 0"


def _build_elements_check(values: str, kind: IcebergType, drops: bool, depth: int) -> str:
    return build_shape_check(values, kind, drops=drops, depth=depth + 1)


def add_missing_fields(kind: IcebergType, source: IcebergType) -> IcebergType:
    """Return a type whose structs are extended by the fields that only the source has.

    >>> from runnel.connect.iceberg_types import make_struct_type
    >>> kind, source = make_struct_type({"a": StringType()}), make_struct_type({"b": StringType()})
    >>> [field.name for field in add_missing_fields(kind, source).fields]
    ['a', 'b']
    """
    if isinstance(kind, StructType) and isinstance(source, StructType):
        source_types = {field.name: field.field_type for field in source.fields}
        fields = [
            _extend_field(field, source_types[field.name]) if field.name in source_types else field
            for field in kind.fields
        ]
        existing_names = {field.name for field in kind.fields}
        added_fields = [
            NestedField(NO_ID, name, replace_unknown_types(source_type), required=False)
            for name, source_type in source_types.items()
            if name not in existing_names
        ]
        return StructType(*fields, *added_fields)
    if isinstance(kind, ListType) and isinstance(source, ListType):
        return ListType(
            kind.element_id, add_missing_fields(kind.element_type, source.element_type), kind.element_required
        )
    if isinstance(kind, MapType):
        value = kind.value_type
        for source_type in _iterate_value_types(source):
            value = add_missing_fields(value, source_type)
        return MapType(kind.key_id, kind.key_type, kind.value_id, value, kind.value_required)
    return kind


def _extend_field(field: NestedField, source: IcebergType) -> NestedField:
    kind = add_missing_fields(field.field_type, source)
    return NestedField(field.field_id, field.name, kind, required=field.required, doc=field.doc)


def _iterate_value_types(source: IcebergType) -> Iterator[IcebergType]:
    """Yield the value types of a source that is stored as a map; JSON does not tell maps from structs."""
    if isinstance(source, StructType):
        yield from (field.field_type for field in source.fields)
    elif isinstance(source, MapType):
        yield source.value_type


def list_new_fields(kind: IcebergType, source: IcebergType, path: str) -> Iterator[str]:
    """Yield the paths of the fields that `add_missing_fields` adds."""
    if isinstance(kind, StructType) and isinstance(source, StructType):
        existing_types = {field.name: field.field_type for field in kind.fields}
        for field in source.fields:
            if field.name not in existing_types:
                yield f"{path}.{field.name}"
            else:
                yield from list_new_fields(existing_types[field.name], field.field_type, f"{path}.{field.name}")
    elif isinstance(kind, ListType) and isinstance(source, ListType):
        yield from list_new_fields(kind.element_type, source.element_type, path)
    elif isinstance(kind, MapType):
        for value_type in _iterate_value_types(source):
            yield from list_new_fields(kind.value_type, value_type, path)


def can_convert(source: IcebergType, kind: IcebergType, *, drops: bool) -> bool:
    """Tell whether every value of a nested type can be stored as another, with fields matched by name.

    Fields that the source lacks are null. Fields that the target lacks prevent it, unless `drops` leaves them out.
    """
    if isinstance(source, StructType) and isinstance(kind, StructType):
        target_types = {field.name: field.field_type for field in kind.fields}
        shared = [field for field in source.fields if field.name in target_types]
        is_complete = drops or len(shared) == len(source.fields)
        return (
            bool(shared)
            and is_complete
            and all(
                can_convert(shared_field.field_type, target_types[shared_field.name], drops=drops)
                for shared_field in shared
            )
        )
    if isinstance(source, ListType) and isinstance(kind, ListType):
        return can_convert(source.element_type, kind.element_type, drops=drops)
    if isinstance(source, MapType) and isinstance(kind, MapType):
        return source.key_type == kind.key_type and can_convert(source.value_type, kind.value_type, drops=drops)
    return source.is_primitive and kind.is_primitive and is_storable_as(source, kind)


def _iterate_leaves(source: IcebergType, kind: IcebergType, path: str) -> Iterator[tuple[str, IcebergType]]:
    """Yield the paths of leaves that need a conversion, with their target types."""
    if isinstance(source, UnknownType) or is_storable_as(source, kind):
        return
    if isinstance(kind, ListType) and isinstance(source, ListType):
        yield from _iterate_leaves(source.element_type, kind.element_type, f"{path}[*]")
    elif isinstance(kind, StructType) and isinstance(source, StructType):
        target_types = {field.name: field.field_type for field in kind.fields}
        for field in source.fields:
            if field.name not in target_types:
                raise ShapeMismatch
            yield from _iterate_leaves(field.field_type, target_types[field.name], f"{path}.{_quote_key(field.name)}")
    elif isinstance(kind, MapType) and isinstance(source, StructType) and isinstance(kind.key_type, StringType):
        for field in source.fields:
            yield from _iterate_leaves(field.field_type, kind.value_type, f"{path}.{_quote_key(field.name)}")
    elif kind.is_primitive and source.is_primitive and build_conversion("leaf", kind) is not None:
        yield path, kind
    else:
        raise ShapeMismatch


def _quote_key(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
