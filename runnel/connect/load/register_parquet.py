"""Register Parquet files with a table where they are, without copying them.

Readers find their columns by name, through the table's name mapping. The counts and bounds of their footers go into the
manifest; columns that only their paths name (`day=2026-01-02/`) become partition values.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema

from runnel.connect.files.file_patterns import PARQUET, LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.parquet import FileFooter
from runnel.connect.iceberg_types import find_common_type, strip_field_ids
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.parquet_footers import IN_PLACE_FIX, find_column
from runnel.errors import Mistake, join_names
from runnel.lake.iceberg.file_io import local_path, normalize_location
from runnel.lake.iceberg.schema_diff import describe_type

if TYPE_CHECKING:
    from runnel.lake.store import Store

NAME_MAPPING = "schema.name-mapping.default"


def prepare_request(store: "Store", load_request: LoadRequest) -> LoadRequest:
    """Return the request with the real paths of its files; raise if a file can't be registered."""
    if load_request.format != PARQUET:
        what = f"only Parquet can be registered in place, and {load_request.files[0].name} is {load_request.format}"
        raise Mistake("LOAD_IN_PLACE", what, at=load_request.files[0].name, fix=IN_PLACE_FIX)
    warehouse_path = local_path(store.warehouse)
    root = os.path.realpath(warehouse_path) + os.sep if warehouse_path else None
    real_files = []
    for file in load_request.files:
        path = os.path.realpath(file.path)
        if root and path.startswith(root):
            what = f"{file.name} is in the lake's own warehouse, whose files are removed with their tables"
            raise Mistake("LOAD_IN_PLACE", what, at=file.name, fix="copy it elsewhere, or " + IN_PLACE_FIX)
        real_files.append(replace(file, path=path))
    return replace(load_request, files=tuple(real_files))


def check_registrable(footers: Iterable[FileFooter], choices: Sequence[ColumnChoice]) -> None:
    """Refuse files that Iceberg's readers would misread or could not read."""
    loaded_columns = {choice.file_column.name.lower() for choice in choices}
    for footer in footers:
        left_out = [name for name in footer.kinds if name.lower() not in loaded_columns]
        if left_out:
            what = (
                f"{footer.file.name} can't be registered without its columns {join_names(left_out)}: some readers fail"
            )
            raise Mistake(
                "LOAD_IN_PLACE", what, at=footer.file.name, fix="add them: --on-new-column add, or " + IN_PLACE_FIX
            )
        for position in range(footer.metadata.num_columns):
            column = footer.metadata.schema.column(position)
            why = _explain_misreading(column)
            if why:
                what = f"{footer.file.name} can't be registered: its column `{column.path}` {why}"
                raise Mistake("LOAD_IN_PLACE", what, at=footer.file.name, fix=IN_PLACE_FIX)


def check_field_ids(metadata: TableMetadata, footer: FileFooter) -> None:
    """Refuse a file whose field ids differ from the table's: readers prefer field ids to names."""
    for name, field_id in footer.ids.items():
        field = find_column(metadata.schema(), name)
        if field is None or field.field_id != field_id or not field.field_type.is_primitive:
            what = f"{footer.file.name} can't be registered: its columns carry field ids of another table (`{name}`)"
            raise Mistake("LOAD_IN_PLACE", what, at=footer.file.name, fix=IN_PLACE_FIX)


def _explain_misreading(column: Any) -> str | None:
    logical = json.loads(column.logical_type.to_json()) if column.logical_type else {}
    kind, unit = logical.get("Type"), logical.get("timeUnit", "microseconds")
    if column.physical_type == "INT96" or unit != "microseconds":
        return f"has times in {'nanoseconds' if column.physical_type == 'INT96' else unit}, Iceberg's are microseconds"
    if kind == "Int" and not logical.get("isSigned", True):
        return "is unsigned"
    return "has half-precision numbers" if kind == "Float16" else None


def choose_file_types(choices: Sequence[ColumnChoice], footers: Sequence[FileFooter]) -> tuple[ColumnChoice, ...]:
    """Return choices with the first type as which every file can be read without conversion."""
    file_choices = []
    for choice in choices:
        if choice.file_column.kind is None:
            file_choices.append(choice)
            continue
        for conversion in choice.conversions:
            unreadable_footers = [footer for footer in footers if not _is_readable_as(footer, choice, conversion.kind)]
            if not unreadable_footers:
                file_choices.append(replace(choice, conversions=(conversion,)))
                break
        else:
            name, kind = choice.file_column.name, choice.conversions[0].kind
            what = (
                f"the column `{name}` of {unreadable_footers[0].file.name} is "
                f"{describe_type(choice.file_column.kind)}, not {describe_type(kind)}"
            )
            raise Mistake(
                "LOAD_TYPE", what, at=unreadable_footers[0].file.name, fix=IN_PLACE_FIX + ", which converts it"
            )
    return tuple(file_choices)


def _is_readable_as(footer: FileFooter, choice: ColumnChoice, kind: Any) -> bool:
    stored = footer.find_type(choice.file_column.name)
    return stored is None or strip_field_ids(stored) == strip_field_ids(kind) or find_common_type(stored, kind) == kind


def build_name_mapping(
    metadata: TableMetadata, choices: Sequence[ColumnChoice], footers: Sequence[FileFooter]
) -> dict[str, str]:
    """Return the table property with the name mapping, including every spelling that a file uses."""
    current_mapping = metadata.name_mapping()
    names_by_id = {field.field_id: list(field.names) for field in current_mapping.root} if current_mapping else {}
    spellings: dict[str, set[str]] = {}
    for footer in footers:
        for name in footer.kinds:
            spellings.setdefault(name.lower(), set()).add(name)
    for choice in choices:
        field = metadata.schema().find_field(choice.name)
        names = names_by_id.setdefault(field.field_id, [field.name])
        names += sorted(spellings.get(choice.file_column.name.lower(), set()) - set(names))
    root = [
        MappedField(
            field_id=field.field_id, names=names_by_id.get(field.field_id, list(field.names)), fields=list(field.fields)
        )
        for field in create_mapping_from_schema(metadata.schema()).root
    ]
    return {NAME_MAPPING: NameMapping(root).model_dump_json()}


def check_not_registered(files: Iterable[LocalFile], paths: Iterable[str], table: str) -> None:
    """Refuse files that the table already has: their rows would be there twice."""
    registered_paths = {normalize_location(path) for path in paths}
    repeated_files = [file.name for file in files if file.path in registered_paths]
    if repeated_files:
        what = f"`{table}` has {join_names(repeated_files)} already"
        raise Mistake(
            "LOAD_REGISTERED", what, at=repeated_files[0], fix="leave it out, or replace all rows with --replace"
        )
