"""Match the columns of files with those of a table: target column, possible conversions, new columns.

Pure: schemas in, choices out. `infer_types` finds out which conversions the values allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import IcebergType, NestedField, StringType

from runnel.connect.files.format_reader import FileColumn
from runnel.connect.files.text_values import ColumnConversion, build_conversion, guess_conversion
from runnel.connect.iceberg_types import (
    can_cast,
    is_storable_as,
    list_promotions,
    replace_unknown_types,
    strip_field_ids,
    to_iceberg_field,
)
from runnel.connect.load.nested_values import (
    ShapeMismatch,
    add_missing_fields,
    build_leaf_check,
    build_shape_check,
    can_convert,
    list_new_fields,
)
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.internal_names import explain_reserved_name
from runnel.lake.iceberg.schema_diff import describe_type
from runnel.lake.scan.duckdb_types import to_duckdb_type
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.declare.model.column_types import Column

ADD, IGNORE, STOP = "add", "ignore", "stop"
_MISSING_FIX = "add the column, or correct its name; if files may lack it, --missing-columns null"
_TOO_LONG = r"(^|[\[:,])\s*-?([1-9][0-9]{19,}|9[3-9][0-9]{17}|92[3-9][0-9]{16}|922[4-9][0-9]{15})\s*([,\]}]|$)"


@dataclass(frozen=True)
class ColumnChoice:
    """A column to load: the file's column, the table's column, and the possible conversions, the best first."""

    file_column: FileColumn
    name: str
    conversions: tuple[ColumnConversion, ...]
    stored: NestedField | None = None  # the table's column, None for a new one
    required: bool = False
    doc: str | None = None

    @property
    def is_guessed(self) -> bool:
        """Tell whether its type is guessed from the values."""
        return bool(self.file_column.guesses) and len(self.conversions) > 1 and self.stored is None


def match_columns(
    columns: Sequence[FileColumn],
    declared: Sequence["Column"],
    table: "Schema | None",
    on_new_column: str,
    files_label: str,
) -> tuple[ColumnChoice, ...]:
    """Return how each column of the files is loaded; `files_label` names the files in errors."""
    if on_new_column not in (ADD, IGNORE, STOP):
        raise Mistake("LOAD_OPTION", f"on_new_column can't be {on_new_column!r}", fix="use add, ignore or stop")
    declared_fields = {column.name.lower(): to_iceberg_field(column) for column in declared}
    choices: list[ColumnChoice] = []
    unknown: list[str] = []
    for column in columns:
        stored, declared_field = _find_field(table, column.name), declared_fields.get(column.name.lower())
        new_nested_fields = _list_file_fields(column, stored or declared_field) if on_new_column == STOP else []
        if stored is None and declared_field is None and (table is not None or declared) and on_new_column != ADD:
            unknown.append(column.name)
        elif new_nested_fields:
            unknown += new_nested_fields
        else:
            choices.append(_match_column(column, stored, declared_field, on_new_column, files_label))
    if unknown and on_new_column == STOP:
        raise _describe_unknown_columns(
            unknown, [*_list_column_names(table), *(column.name for column in declared)], files_label
        )
    _refuse_missing_columns(columns, choices, declared_fields, table, files_label)
    _refuse_reserved(choices, files_label)
    order = {name: position for position, name in enumerate(declared_fields)}
    return tuple(sorted(choices, key=lambda choice: order.get(choice.name.lower(), len(order))))


def _match_column(
    column: FileColumn,
    stored: NestedField | None,
    declared_field: NestedField | None,
    on_new_column: str,
    files_label: str,
) -> ColumnChoice:
    if stored is None and declared_field is None:
        return ColumnChoice(column, column.name, _guess_conversions(column), doc=column.doc)
    widens, drops = on_new_column == ADD, on_new_column == IGNORE
    if stored is None and declared_field is not None:
        kind = _add_file_fields(column, declared_field.field_type) if widens else declared_field.field_type
        return ColumnChoice(
            column,
            declared_field.name,
            _list_conversions(column, (kind,), files_label, drops),
            None,
            declared_field.required,
            declared_field.doc,
        )
    assert stored is not None
    kinds = (stored.field_type, *(list_promotions(stored.field_type) if widens else ()))
    if declared_field is not None:
        kinds = _select_declared_types(
            [add_missing_fields(kind, declared_field.field_type) for kind in kinds] if widens else kinds,
            declared_field,
            files_label,
        )
    kinds = tuple(_add_file_fields(column, kind) for kind in kinds) if widens else kinds
    return ColumnChoice(
        column, stored.name, _list_conversions(column, kinds, files_label, drops), stored, stored.required
    )


def _add_file_fields(column: FileColumn, kind: IcebergType) -> IcebergType:
    """Return a type extended by the nested fields that only the files have."""
    for shape in (column.kind, *column.shapes):
        kind = add_missing_fields(kind, shape) if shape is not None else kind
    return kind


def _list_file_fields(column: FileColumn, field: NestedField | None) -> list[str]:
    """Return the nested fields of a column that only the files have."""
    if field is None:
        return []
    shapes = [shape for shape in (column.kind, *column.shapes) if shape is not None]
    return [name for shape in shapes for name in list_new_fields(field.field_type, shape, field.name)]


def _select_declared_types(
    kinds: Sequence[IcebergType], declared_field: NestedField, files_label: str
) -> tuple[IcebergType, ...]:
    """Return the types of a table's column that can store the type the user declared."""
    matching_kinds = tuple(
        kind for kind in kinds if is_storable_as(strip_field_ids(declared_field.field_type), strip_field_ids(kind))
    )
    if not matching_kinds:
        what = (
            f"the schema says that `{declared_field.name}` is "
            f"{describe_type(declared_field.field_type)}, but in the table it is "
        )
        raise Mistake(
            "LOAD_TYPE", what + describe_type(kinds[0]), at=files_label, fix="leave it out of the schema, or change it"
        )
    return matching_kinds


def _guess_conversions(column: FileColumn) -> tuple[ColumnConversion, ...]:
    if column.kind is not None:
        conversion = _convert_column(column, replace_unknown_types(column.kind))
        assert conversion is not None
        return (conversion,)
    text = ColumnConversion(StringType(), column.sql_name, column.sql_name)
    return (*(guess_conversion(column.sql_name, name, column.text_format) for name in column.guesses), text)


def _list_conversions(
    column: FileColumn, kinds: Sequence[IcebergType], files_label: str, drops: bool
) -> tuple[ColumnConversion, ...]:
    conversions = tuple(conversion for kind in kinds if (conversion := _convert_column(column, kind, drops)))
    if not conversions:
        type_name = describe_type(replace_unknown_types(column.kind)) if column.kind else "text"
        what = (
            f"the column `{column.name}` of {files_label} is {type_name}, which can't become {describe_type(kinds[0])}"
        )
        raise Mistake("LOAD_TYPE", what, at=files_label, fix="convert it, or load it into another column")
    return conversions


def _convert_column(column: FileColumn, kind: IcebergType, drops: bool = False) -> ColumnConversion | None:
    """Return how a column is stored as `kind`, or None if no value can be.

    With `drops`, nested fields that the type lacks are left out.
    """
    sql, source = column.sql_name, column.kind
    if source is None and column.json_sql_name is not None and not kind.is_primitive:
        return _convert_mixed_json(column.json_sql_name, kind, drops)
    if source is None:
        # A column that is null in every row has no type; it can be stored as any.
        null_conversion = (
            ColumnConversion(kind, f"CAST(NULL AS {to_duckdb_type(kind)})", sql, "false")
            if not column.guesses
            else None
        )
        return build_conversion(sql, kind, column.text_format) or null_conversion
    is_same_type = strip_field_ids(source) == strip_field_ids(kind)
    if column.is_json:
        return _convert_json(sql, source, kind, drops)
    if is_same_type or (source.is_primitive and is_storable_as(source, kind)):
        return ColumnConversion(kind, f"CAST({sql} AS {to_duckdb_type(kind)})", sql)
    if not kind.is_primitive and can_convert(strip_field_ids(source), strip_field_ids(kind), drops=drops):
        return ColumnConversion(kind, f"CAST({sql} AS {to_duckdb_type(kind)})", sql)
    if not can_cast(source, kind):
        return None
    if isinstance(source, StringType):
        return build_conversion(sql, kind)
    value = f"TRY_CAST({sql} AS {to_duckdb_type(kind)})"
    if isinstance(kind, StringType):
        return ColumnConversion(kind, value, sql)
    return ColumnConversion(kind, value, sql, f"TRY_CAST({value} AS {to_duckdb_type(source)}) = {sql}")


def _convert_mixed_json(sql: str, kind: IcebergType, drops: bool) -> ColumnConversion | None:
    """Return how to store a JSON column in which only some rows have the shape of the type."""
    if kind.is_primitive:
        return build_conversion(f"json_extract_string({sql}, '$')", kind)
    try:
        shape_check = build_shape_check(f"[{sql}]", strip_field_ids(kind), drops=drops)
    except ShapeMismatch:
        return None
    return ColumnConversion(kind, f"TRY_CAST({sql} AS {to_duckdb_type(kind)})", sql, shape_check)


def _convert_json(sql: str, source: IcebergType, kind: IcebergType, drops: bool) -> ColumnConversion | None:
    """Return how to store a JSON column; if the shape over all rows does not fit, each row is checked by itself."""
    if isinstance(kind, StringType):
        return ColumnConversion(kind, f"CAST({sql} AS VARCHAR)", sql)
    try:
        leaf_check = build_leaf_check(sql, source, strip_field_ids(kind))
    except ShapeMismatch:
        return _convert_mixed_json(sql, kind, drops)
    # CAST refuses objects that lack a key. TRY_CAST does not, but turns integers too large for a long into null.
    value = f"TRY_CAST({sql} AS {to_duckdb_type(kind)})"
    has_longs = "long" in str(kind) or "int" in str(kind)
    range_check = f"NOT regexp_matches(CAST({sql} AS VARCHAR), '{_TOO_LONG}')" if has_longs else None
    return ColumnConversion(kind, value, sql, " AND ".join(filter(None, (range_check, leaf_check))) or None)


def _refuse_missing_columns(
    columns: Sequence[FileColumn],
    choices: Sequence[ColumnChoice],
    declared_fields: dict[str, NestedField],
    table: "Schema | None",
    files_label: str,
) -> None:
    """Raise if the files lack a required column, or have no column to load."""
    present = {column.name.lower() for column in columns}
    required_names = {field.name for field in table.fields if field.required} if table else set()
    missing = sorted(
        name
        for name in (required_names | {field.name for field in declared_fields.values()})
        if name.lower() not in present
    )
    if missing:
        what = f"{files_label} lacks {join_names(missing)}" + did_you_mean(
            missing[0], [column.name for column in columns]
        )
        raise Mistake("LOAD_COLUMN_MISSING", what, at=files_label, fix=_MISSING_FIX)
    if table is not None and choices and not any(choice.stored for choice in choices):
        what = (
            f"{files_label} has none of the table's columns: it has {join_names(present)}, "
            f"the table {join_names(_list_column_names(table))}"
        )
        fix = "is it the right table? For CSV without a header, use --no-header"
        raise Mistake("LOAD_COLUMNS_UNKNOWN", what, at=files_label, fix=fix)
    if not choices:
        raise Mistake(
            "LOAD_COLUMNS_UNKNOWN",
            f"{files_label} has no column that can be loaded",
            at=files_label,
            fix="check the file",
        )


def _refuse_reserved(choices: Sequence[ColumnChoice], files_label: str) -> None:
    """Refuse a new column with a reserved name; an existing column with such a name is still loaded."""
    for choice in choices:
        why = explain_reserved_name(choice.name) if choice.stored is None else None
        if why:
            what = f"{files_label} can't be loaded: it has a column {quote_value(choice.name)}, {why}"
            raise Mistake("LOAD_COLUMN_NAME", what, at=files_label, fix="rename the column where the rows come from")


def _describe_unknown_columns(unknown: Sequence[str], known_names: Sequence[str], files_label: str) -> Mistake:
    what = f"{files_label} has columns that the table does not have: {join_names(unknown)}"
    fix = "correct the name, or add them with --on-new-column add, or leave them out with ignore"
    return Mistake("LOAD_NEW_COLUMN", what + did_you_mean(unknown[0], known_names), at=files_label, fix=fix)


def _list_column_names(table: "Schema | None") -> list[str]:
    return [field.name for field in table.fields] if table else []


def _find_field(table: "Schema | None", name: str) -> NestedField | None:
    """Return the table's column of this name: an exact match, else a match that ignores case."""
    if table is None:
        return None
    exact = [field for field in table.fields if field.name == name]
    loose = [field for field in table.fields if field.name.lower() == name.lower()]
    return next(iter(exact or loose), None)
