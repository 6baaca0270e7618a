"""Inspect the files of a unit: which can be read, and which columns they have. Merge what all units found."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from runnel.connect.files import csv, jsonl, parquet
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import CSV, PARQUET
from runnel.connect.files.format_reader import FileColumn
from runnel.connect.files.json_structure import JsonFacts, merge_facts
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import AnyReader, list_null_columns
from runnel.connect.files.parquet import FileFooter, ParquetReader
from runnel.connect.ingest.column_check import check_columns
from runnel.connect.ingest.detect.listing import is_object_url
from runnel.connect.ingest.units.file_unit import FileUnit
from runnel.connect.ingest.units.line_ranges import LineCounts
from runnel.connect.ingest.units.unit_reader import UnitContext, UnitFiles, UnreadableReason


@dataclass(frozen=True)
class UnitFacts:
    """What a unit's files have: headers of CSV, the structure of JSON lines, or footers of Parquet, each kind once."""

    unreadable: tuple[UnreadableReason, ...] = ()
    empty_names: tuple[str, ...] = ()
    has_rows: bool = False  # a file can be read; it may still have no rows
    must_check: bool = False
    headers: tuple[tuple[str, ...], ...] = ()
    json_facts: JsonFacts | None = None
    footers: tuple[FileFooter, ...] = ()
    line_counts: LineCounts = field(default_factory=LineCounts)  # of a split of a file


@dataclass(frozen=True)
class UnitInspector:
    """Inspects units; `existing_columns` are those of the table."""

    context: UnitContext
    existing_columns: tuple[str, ...]

    def __call__(self, unit: FileUnit) -> UnitFacts:
        """Return the facts of a unit."""
        with UnitFiles(self.context, unit) as files:
            while files.has_files:
                facts = files.read(lambda reader: self._inspect(files, reader))
                if facts is not None:
                    return replace(
                        facts,
                        unreadable=files.list_unreadable(),
                        empty_names=files.empty_names,
                        line_counts=files.line_counts,
                    )
            return UnitFacts(files.list_unreadable(), files.empty_names, line_counts=files.line_counts)

    def _inspect(self, files: UnitFiles, reader: AnyReader) -> UnitFacts | None:
        if self.context.load_request is None:  # a load checks the columns of all files together
            incomplete_files = check_columns(reader, self.context.source, self.existing_columns)
            if incomplete_files:
                files.unreadable += incomplete_files
                return None
        if isinstance(reader, CsvReader):
            return UnitFacts(has_rows=True, must_check=True, headers=tuple(dict.fromkeys(reader.headers.values())))
        if isinstance(reader, JsonReader):
            return UnitFacts(has_rows=True, must_check=True, json_facts=reader.facts)
        return UnitFacts(has_rows=True, must_check=reader.must_check, footers=_list_distinct_footers(reader))


@dataclass(frozen=True)
class UnitGroup:
    """Units that are inspected by one task."""

    units: tuple[FileUnit, ...]


@dataclass(frozen=True)
class GroupInspector:
    """Inspects the units of a group one after the other."""

    inspector: UnitInspector

    def __call__(self, group: UnitGroup) -> list[UnitFacts]:
        """Return the facts of each unit."""
        return [self.inspector(unit) for unit in group.units]


def is_inspected_quickly(unit: FileUnit, format_name: str) -> bool:
    """Tell whether inspecting a unit takes less than a task of Spark: only headers or footers on disk are read."""
    is_quick_format = format_name == PARQUET or (format_name == CSV and unit.byte_range is None)
    return is_quick_format and not any(file.compression or is_object_url(file.path) for file in unit.files)


def _list_distinct_footers(reader: ParquetReader) -> tuple[FileFooter, ...]:
    """Return the first footer of each set of columns."""
    distinct = {str((footer.kinds, [*footer.hive_values])): footer for footer in reversed(reader.footers.values())}
    return tuple(reversed(distinct.values()))


def number_lines(
    units: Sequence[FileUnit], facts: Sequence[UnitFacts], *, is_csv: bool
) -> tuple[list[FileUnit], tuple[UnreadableReason, ...]]:
    """Return the units with the lines before each split of a file, and the files that can't be read in splits.

    That is so for CSV if the lines of its splits end differently, and if no split has a row.
    """
    lines_before: dict[str, int] = {}
    line_ends: dict[str, set[bool]] = {}
    names_with_rows: set[str] = set()
    numbered_units = []
    for unit, unit_facts in zip(units, facts, strict=True):
        if unit.byte_range is None:
            numbered_units.append(unit)
            continue
        name, counts = unit.files[0].name, unit_facts.line_counts
        byte_range = replace(unit.byte_range, lines_before=lines_before.get(name, 0))
        numbered_units.append(replace(unit, byte_range=byte_range))
        lines_before[name] = lines_before.get(name, 0) + counts.lines
        line_ends.setdefault(name, set()).update({False} if counts.lines > counts.returns else ())
        line_ends[name].update({True} if counts.returns else ())
        names_with_rows.update({name} if unit_facts.has_rows else ())
    undivided = [name for name, ends in line_ends.items() if name not in names_with_rows or (is_csv and len(ends) > 1)]
    return numbered_units, tuple(UnreadableReason(name, {}, is_split=True) for name in undivided)


def merge_columns(request: LoadRequest, facts: Sequence[UnitFacts]) -> tuple[FileColumn, ...]:
    """Return the columns of all units together, as one reader of all files has them."""
    expected = [column.name for column in request.schema]
    json_facts = [unit_facts.json_facts for unit_facts in facts if unit_facts.json_facts is not None]
    if json_facts:
        return jsonl.list_columns(
            merge_facts(json_facts), expected, request.document.text_format, jsonl.label_files(request.files)
        )
    null_columns = list_null_columns(request, expected)
    if any(unit_facts.footers for unit_facts in facts):
        return parquet.list_columns([footer for unit_facts in facts for footer in unit_facts.footers], null_columns)
    headers = (header for unit_facts in facts for header in unit_facts.headers)
    return csv.merge_columns(headers, request.csv, null_columns)
