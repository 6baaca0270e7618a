"""Update a table by what changed in its log, by buckets: two shuffles, in each of which rows with equal keys meet.

The first finds the keys of log rows that were added or removed. In the second, all log rows of these keys and their
rows in the table meet. If the keys are few, all units get them, so that few rows are shuffled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.connect.changes.change_errors import ChangeErrors
from runnel.connect.changes.change_sql import ChangeRule, list_column_names, quote_columns
from runnel.connect.changes.key_lookup import KeyLookup
from runnel.connect.changes.log_buckets import list_key_expressions, write_selected_rows
from runnel.connect.feed.row_places import RowPlaces, write_places
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.row_pieces import count_buckets, decode_piece, encode_piece, load_pieces, split_rows
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.scan.scan_units import ScanUnit, build_scan_units, count_bytes
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.lake.work_runner import ReportUnits, WorkRunner

if TYPE_CHECKING:
    import duckdb

MOST_KEY_BYTES = 32 * 1024 * 1024  # more touched keys are not sent to all units
_REMOVED_SIDE, _ADDED_SIDE, _LOG_SIDE, _TABLE_SIDE = range(4)
_TABLES = ("runnel_removed", "runnel_added", "runnel_log", "runnel_table")
_KEYS, _RESULT, _DIFFERING, _PLACES = "runnel_keys", "runnel_result", "runnel_differing", "runnel_places"


@dataclass(frozen=True)
class LogChange:
    """What is compared: the files in which two versions of a log differ, all files of the log and of the table."""

    removed: Sequence[FileEntry]
    added: Sequence[FileEntry]
    log: Sequence[FileEntry]
    table: Sequence[FileEntry]

    @property
    def differing_bytes(self) -> int:
        """Return the size of the log's files that differ."""
        return count_bytes([*self.removed, *self.added])


@dataclass(frozen=True)
class LogUpdate:
    """How a table is updated; `log` and `target` are the metadata of the log and the table, without history."""

    files: WarehouseFiles
    rule: ChangeRule
    errors: ChangeErrors
    log: TableMetadata
    target: TableMetadata

    def build_empty_select(self, side: int) -> str:
        """Return a SELECT of no rows, with the columns of a side."""
        is_table = side == _TABLE_SIDE
        return rows_sql(self.files, self.target if is_table else self.log, (), with_positions=is_table)


@dataclass(frozen=True)
class TouchedKeys:
    """The keys whose log rows changed, as pieces; None if they are too many to be sent around.

    `left_out` counts the rows that were added to the log and can't be applied.
    """

    pieces: tuple[bytes, ...] | None = field(repr=False)
    left_out: int = 0


@dataclass(frozen=True)
class UpdatedBucket:
    """The new rows of a bucket, and the places of the rows that they replace."""

    files: tuple[DataFile, ...]
    places: RowPlaces


def find_touched_keys(
    runner: WorkRunner, update: LogUpdate, change: LogChange, report_units: ReportUnits | None = None
) -> TouchedKeys:
    """Return the keys of log rows that were added or removed."""
    units = _build_units(runner, {_REMOVED_SIDE: change.removed, _ADDED_SIDE: change.added})
    bucket_count = count_buckets(change.differing_bytes, runner.parallel_units)
    splitter = _SideSplitter(update, bucket_count)
    finder = _KeyFinder(update, MOST_KEY_BYTES // bucket_count)
    buckets = runner.run_shuffled(splitter, units, finder, bucket_count, report_units)
    left_out = runner.run(_LeftOutCounter(update), [unit for unit in units if unit.side == _ADDED_SIDE])
    pieces = tuple(bucket for bucket in buckets if bucket is not None)
    return TouchedKeys(pieces if len(pieces) == len(buckets) else None, sum(left_out))


def update_buckets(
    runner: WorkRunner,
    update: LogUpdate,
    change: LogChange,
    touched_keys: TouchedKeys,
    report_units: ReportUnits | None = None,
) -> list[UpdatedBucket]:
    """Write the new rows of the touched keys that differ from those of the table."""
    sides = {_LOG_SIDE: change.log, _TABLE_SIDE: change.table}
    byte_count = change.differing_bytes
    if touched_keys.pieces is None:
        sides |= {_REMOVED_SIDE: change.removed, _ADDED_SIDE: change.added}
        byte_count += count_bytes([*change.log, *change.table])
    bucket_count = count_buckets(byte_count, runner.parallel_units)
    splitter = _SideSplitter(update, bucket_count, touched_keys.pieces)
    updater = _BucketUpdater(update, is_filtered=touched_keys.pieces is not None)
    return runner.run_shuffled(splitter, _build_units(runner, sides), updater, bucket_count, report_units)


def _build_units(runner: WorkRunner, sides: dict[int, Sequence[FileEntry]]) -> list[ScanUnit]:
    return [
        unit for side, entries in sides.items() for unit in build_scan_units(entries, runner.parallel_units, side=side)
    ]


@dataclass(frozen=True)
class _LeftOutCounter:
    """Counts the rows of a unit that can't be applied."""

    update: LogUpdate

    def __call__(self, unit: ScanUnit) -> int:
        with self.update.errors.describe(), connect_duckdb() as con:
            rows = rows_sql(self.update.files, self.update.log, unit.entries)
            sql = f"SELECT count(*) FROM ({rows}) WHERE NOT ({self.update.rule.is_applicable_sql})"
            return int(con.execute(sql).fetchall()[0][0])


@dataclass(frozen=True)
class _SideSplitter:
    """Splits the files of a side by key; with `key_pieces` only the rows that have one of these keys."""

    update: LogUpdate
    bucket_count: int
    key_pieces: tuple[bytes, ...] | None = field(default=None, repr=False)

    def __call__(self, unit: ScanUnit) -> Iterator[tuple[int, bytes]]:
        update = self.update
        with update.errors.describe(), connect_duckdb() as con:
            rows = self._build_select(con, unit)
            if unit.side != _TABLE_SIDE:
                rows = f"SELECT * FROM ({rows}) WHERE {update.rule.is_applicable_sql}"
            yield from split_rows(con, rows, list_key_expressions(update.rule), self.bucket_count, side=unit.side)

    def _build_select(self, con: "duckdb.DuckDBPyConnection", unit: ScanUnit) -> str:
        is_table = unit.side == _TABLE_SIDE
        metadata = self.update.target if is_table else self.update.log
        if self.key_pieces is None:
            return rows_sql(self.update.files, metadata, unit.entries, with_positions=is_table)
        con.register(_KEYS, pa.concat_tables([decode_piece(piece)[1] for piece in self.key_pieces]))
        lookup = KeyLookup(self.update.files, con, _KEYS, self.update.rule.key)
        return lookup.build_select(metadata, unit.entries, with_positions=is_table)


@dataclass(frozen=True)
class _KeyFinder:
    """Finds the keys of a bucket's rows that only one version of the log has."""

    update: LogUpdate
    most_bytes: int

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> bytes | None:
        with self.update.errors.describe(), connect_duckdb() as con:
            _load_sides(con, self.update, pieces)
            keys = con.sql(_build_touched_select(self.update.rule)).to_arrow_table()
            return encode_piece(keys) if keys.nbytes <= self.most_bytes else None


@dataclass(frozen=True)
class _BucketUpdater:
    """Writes the new rows of a bucket, and the places of those they replace."""

    update: LogUpdate
    is_filtered: bool

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> UpdatedBucket:
        update, rule = self.update, self.update.rule
        with update.errors.describe(), connect_duckdb() as con:
            _load_sides(con, update, pieces)
            has_key = ""
            if not self.is_filtered:
                con.execute(f"CREATE TEMP TABLE {_KEYS} AS {_build_touched_select(rule)}")
                has_key = f"SEMI JOIN {_KEYS} USING ({rule.key_columns_sql})"
            log_rows, table_rows = (
                f"SELECT rows.* FROM {_TABLES[side]} AS rows {has_key}" for side in (_LOG_SIDE, _TABLE_SIDE)
            )
            con.execute(f"CREATE TEMP TABLE {_RESULT} AS {rule.build_table_select(log_rows)}")
            table_columns = quote_columns(list_column_names(rule.fields))
            differing_keys = rule.build_differing_keys_select(
                rule.fields, f"SELECT * FROM {_RESULT}", f"SELECT {table_columns} FROM ({table_rows})"
            )
            con.execute(f"CREATE TEMP TABLE {_DIFFERING} AS {differing_keys}")
            return self._write(con)

    def _write(self, con: "duckdb.DuckDBPyConnection") -> UpdatedBucket:
        differs = f"SEMI JOIN {_DIFFERING} USING ({self.update.rule.key_columns_sql})"
        writer = RowWriter(self.update.files, self.update.target)
        write_selected_rows(con, f"SELECT made.* FROM {_RESULT} AS made {differs}", writer)
        con.execute(
            f"CREATE TEMP TABLE {_PLACES} AS SELECT old.{quote_identifier(FILE_COLUMN)} AS file, "
            f"old.{quote_identifier(POSITION_COLUMN)} AS pos FROM {_TABLES[_TABLE_SIDE]} AS old {differs}"
        )
        return UpdatedBucket(tuple(writer.close()), write_places(self.update.files, self.update.target, con, _PLACES))


def _load_sides(con: "duckdb.DuckDBPyConnection", update: LogUpdate, pieces: Iterator[bytes]) -> None:
    for side, table in enumerate(_TABLES):
        con.execute(f"CREATE TEMP TABLE {table} AS {update.build_empty_select(side)}")
    load_pieces(con, _TABLES, pieces)


def _build_touched_select(rule: ChangeRule) -> str:
    removed, added = (f"SELECT * FROM {_TABLES[side]}" for side in (_REMOVED_SIDE, _ADDED_SIDE))
    return rule.build_differing_keys_select(rule.columns, removed, added)
