"""Register Parquet files with a table where they are, without copying them.

Their columns are found by name, through the table's name mapping; the counts and bounds of their footers go into the
manifest, and columns that only their paths name (`day=2026-01-02/`) become values of their partition.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema

from runnel.connect.files.file_patterns import PARQUET, File
from runnel.connect.files.load_request import Request
from runnel.connect.files.parquet import Footer
from runnel.connect.iceberg_types import bare, called, common
from runnel.connect.load.column_matching import Choice
from runnel.connect.load.parquet_footers import FIX, column_of
from runnel.errors import Mistake, listed
from runnel.lake.iceberg.file_io import local_path, plain

if TYPE_CHECKING:
    from runnel.lake.store import Store

NAME_MAPPING = "schema.name-mapping.default"


def request(store: "Store", asked: Request) -> Request:
    """Return a request with the real paths of its files, refusing what can't be registered."""
    if asked.format != PARQUET:
        what = f"only Parquet can be registered in place, and {asked.files[0].name} is {asked.format}"
        raise Mistake("LOAD_IN_PLACE", what, at=asked.files[0].name, fix=FIX)
    inside = local_path(store.warehouse)
    root = os.path.realpath(inside) + os.sep if inside else None
    found = []
    for file in asked.files:
        path = os.path.realpath(file.path)
        if root and path.startswith(root):
            what = f"{file.name} lies in the lake's own warehouse, whose files come and go with their tables"
            raise Mistake("LOAD_IN_PLACE", what, at=file.name, fix="copy it elsewhere, or " + FIX)
        found.append(replace(file, path=path))
    return replace(asked, files=tuple(found))


def registrable(footers: Iterable[Footer], choices: Sequence[Choice]) -> None:
    """Refuse files whose contents Iceberg's readers would take for something else, or not at all."""
    taken = {choice.incoming.name.lower() for choice in choices}
    for found in footers:
        left_out = [name for name in found.kinds if name.lower() not in taken]
        if left_out:
            what = f"{found.file.name} can't be registered without its columns {listed(left_out)}: some readers fail"
            raise Mistake("LOAD_IN_PLACE", what, at=found.file.name, fix="take them in: --on-new-column add, or " + FIX)
        for position in range(found.metadata.num_columns):
            column = found.metadata.schema.column(position)
            why = _misread(column)
            if why:
                what = f"{found.file.name} can't be registered: its column `{column.path}` {why}"
                raise Mistake("LOAD_IN_PLACE", what, at=found.file.name, fix=FIX)


def ids_fit(metadata: TableMetadata, footer: Footer) -> None:
    """Refuse a file that names its columns by other ids than the table: ids win over names wherever it is read."""
    for name, field_id in footer.ids.items():
        field = column_of(metadata.schema(), name)
        if field is None or field.field_id != field_id or not field.field_type.is_primitive:
            what = f"{footer.file.name} can't be registered: its columns carry field ids of another table (`{name}`)"
            raise Mistake("LOAD_IN_PLACE", what, at=footer.file.name, fix=FIX)


def _misread(column: Any) -> str | None:
    logical = json.loads(column.logical_type.to_json()) if column.logical_type else {}
    kind, unit = logical.get("Type"), logical.get("timeUnit", "microseconds")
    if column.physical_type == "INT96" or unit != "microseconds":
        return f"has times in {'nanoseconds' if column.physical_type == 'INT96' else unit}, Iceberg's are microseconds"
    if kind == "Int" and not logical.get("isSigned", True):
        return "is unsigned"
    return "has half-precision numbers" if kind == "Float16" else None


def chosen_kinds(choices: Sequence[Choice], footers: Sequence[Footer]) -> tuple[Choice, ...]:
    """Return choices with the first way whose type every file's own type may be read as: nothing is converted."""
    found = []
    for choice in choices:
        if choice.incoming.kind is None:
            found.append(choice)
            continue
        for way in choice.tries:
            odd = [footer for footer in footers if not _readable(footer, choice, way.kind)]
            if not odd:
                found.append(replace(choice, tries=(way,)))
                break
        else:
            name, kind = choice.incoming.name, choice.tries[0].kind
            what = f"the column `{name}` of {odd[0].file.name} is {called(choice.incoming.kind)}, not {called(kind)}"
            raise Mistake("LOAD_TYPE", what, at=odd[0].file.name, fix=FIX + ", which converts it")
    return tuple(found)


def _readable(footer: Footer, choice: Choice, kind: Any) -> bool:
    stored = footer.kind(choice.incoming.name)
    return stored is None or bare(stored) == bare(kind) or common(stored, kind) == kind


def name_mapping(metadata: TableMetadata, choices: Sequence[Choice], footers: Sequence[Footer]) -> dict[str, str]:
    """Return the table property that finds columns by name, with every spelling that a file uses."""
    before = metadata.name_mapping()
    known = {field.field_id: list(field.names) for field in before.root} if before else {}
    spelled: dict[str, set[str]] = {}
    for footer in footers:
        for name in footer.kinds:
            spelled.setdefault(name.lower(), set()).add(name)
    for choice in choices:
        field = metadata.schema().find_field(choice.name)
        names = known.setdefault(field.field_id, [field.name])
        names += sorted(spelled.get(choice.incoming.name.lower(), set()) - set(names))
    root = [
        MappedField(
            field_id=field.field_id, names=known.get(field.field_id, list(field.names)), fields=list(field.fields)
        )
        for field in create_mapping_from_schema(metadata.schema()).root
    ]
    return {NAME_MAPPING: NameMapping(root).model_dump_json()}


def not_twice(files: Iterable[File], paths: Iterable[str], table: str) -> None:
    """Refuse files that the table has already: their rows would count twice."""
    there = {plain(path) for path in paths}
    twice = [file.name for file in files if file.path in there]
    if twice:
        what = f"`{table}` has {listed(twice)} already"
        raise Mistake("LOAD_REGISTERED", what, at=twice[0], fix="leave it out, or replace all rows with --replace")
