"""Test raw records that are not rows of a table yet: events in its inbox, and records in its quarantine.

A record that is a JSON object is tested by a condition over the table's columns, each read from the member of its name.
Any other record is untestable. Reads only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import NestedField, StringType
from sqlglot import exp

from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal, to_duckdb_type
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.scan.scan_units import UNIT_BYTES, ScanUnit, build_scan_units, count_bytes
from runnel.lake.upkeep.erase.condition import Condition, render_condition
from runnel.lake.upkeep.erase.version_rewriter import VersionReader
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.store import Store

RAW = "raw"
_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class RecordMatches:
    """The numbers of the records that match, and how many records can't be tested."""

    matching: tuple[int, ...]
    untestable_count: int


def match_records(condition: Condition, metadata: "TableMetadata", records: Sequence[str]) -> RecordMatches:
    """Test raw records by a condition over the columns of a table."""
    if not records:
        return RecordMatches((), 0)
    fields = {name: _find_field(metadata, name, index) for index, name in enumerate(condition.columns)}
    text_sql = {
        name: f"json_extract_string(raw, {quote_literal(_build_json_pointer(field.name))})"
        for name, field in fields.items()
    }
    value_sql = {
        name: f"TRY_CAST({text_sql[name]} AS {to_duckdb_type(field.field_type)})" for name, field in fields.items()
    }
    columns_sql = ", ".join(f"{value_sql[name]} AS {quote_identifier(field.name)}" for name, field in fields.items())
    is_clear_sql = " AND ".join(f"({text_sql[name]} IS NULL OR {value_sql[name]} IS NOT NULL)" for name in fields)
    is_object_sql = "CASE WHEN json_valid(raw) THEN json_type(raw) = 'OBJECT' ELSE false END"
    sql = (
        f"SELECT number, coalesce({render_condition(condition, fields)}, false) AS matches, is_clear"
        f" FROM (SELECT number, {columns_sql}, {is_clear_sql} AS is_clear FROM objects)"
    )
    with connect_duckdb() as connection:
        connection.register("given", pa.table({"number": range(len(records)), "raw": pa.array(records, pa.string())}))
        connection.execute(f"CREATE TEMP TABLE objects AS SELECT number, raw FROM given WHERE {is_object_sql}")
        rows = connection.execute(sql).fetchall()
        connection.execute("DROP TABLE objects")
        connection.unregister("given")
    matching = tuple(sorted(number for number, matches, _ in rows if matches))
    decided_count = sum(1 for _, matches, is_clear in rows if matches or is_clear)
    return RecordMatches(matching, len(records) - decided_count)


def find_matching_records(
    store: "Store",
    locations: Iterable[str],
    condition: Condition,
    metadata: "TableMetadata",
    work: WorkContext = IN_PROCESS,
) -> tuple[Condition | None, int]:
    """Return a condition that erases the matching records of a quarantine table, and how many records can't be tested.

    The columns of `condition` are those of the table that `metadata` describes. The condition returned is None if no
    record matches.
    """
    entries, quarantine_metadata = _list_files(store, locations)
    if quarantine_metadata is None or not entries:
        return None, 0
    runner = work.choose_runner(count_bytes(entries))
    tester = _RecordTester(store.files, drop_history(quarantine_metadata), condition, drop_history(metadata))
    unit_bytes = UNIT_BYTES if runner.place.name == EXECUTORS else count_bytes(entries)
    units = build_scan_units(entries, runner.parallel_units, unit_bytes=unit_bytes)
    results = runner.run(tester, units, work.make_unit_reporter("erase quarantined rows: look"))
    matching = frozenset[str]().union(*(records.matching for records in results))
    untestable_count = sum(records.untestable_count for records in results)
    if not matching:
        return None, untestable_count
    literals = [exp.Literal.string(text) for text in sorted(matching)]
    return Condition(exp.In(this=exp.column(RAW), expressions=literals), (RAW,), condition.sha256), untestable_count


@dataclass(frozen=True)
class _MatchingRecords:
    """The records of a unit that match, and how many can't be tested."""

    matching: frozenset[str] = field(repr=False)
    untestable_count: int


@dataclass(frozen=True)
class _RecordTester:
    """Tests the records in some files of a quarantine table; can be pickled."""

    files: WarehouseFiles
    quarantine_metadata: "TableMetadata" = field(repr=False)
    condition: Condition = field(repr=False)  # it may name a person
    metadata: "TableMetadata" = field(repr=False)

    def __call__(self, unit: ScanUnit) -> _MatchingRecords:
        matching: set[str] = set()
        untestable_count = 0
        for records in self._read_records(unit):
            record_matches = match_records(self.condition, self.metadata, records)
            matching |= {records[number] for number in record_matches.matching}
            untestable_count += record_matches.untestable_count
        return _MatchingRecords(frozenset(matching), untestable_count)

    def _read_records(self, unit: ScanUnit) -> Iterator[list[str]]:
        """Yield the records in batches."""
        rows = rows_sql(self.files, self.quarantine_metadata, unit.entries)
        with connect_duckdb() as connection:
            cursor = connection.execute(f"SELECT {RAW} FROM ({rows}) WHERE {RAW} IS NOT NULL")
            while batch := cursor.fetchmany(_BATCH_ROWS):
                yield [record for (record,) in batch]


def _list_files(store: "Store", locations: Iterable[str]) -> "tuple[list[FileEntry], TableMetadata | None]":
    """Return the existing data files of some versions, each once, and the metadata of the last version."""
    reader = VersionReader(store)
    files: dict[str, FileEntry] = {}
    metadata = None
    for location in locations:
        version = reader.read_version(location)
        metadata = version.metadata
        files |= {
            entry.path: entry
            for listing in (*version.current_manifests, *version.older_manifests)
            for entry in listing.live_entries
            if entry.is_data
        }
    return [entry for entry in files.values() if store.io.new_input(entry.path).exists()], metadata


def _find_field(metadata: "TableMetadata", name: str, index: int) -> NestedField:
    column = next((field for field in metadata.schema().fields if field.name.lower() == name), None)
    return column or NestedField(index + 1, name, StringType(), required=False)


def _build_json_pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
