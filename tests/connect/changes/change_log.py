"""A log of changes with the table that follows from it, below the level of runs, and what the table ought to be."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from runnel.connect.changes.apply import AppliedChanges, stage_changes
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Changes, Files
from runnel.declare.model.flow import Source, log_table_of
from runnel.declare.model.source_location import SourceLocation
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.work_runner import ChooseRunner, run_in_process
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.plan.decisions.change_log import compute_content_id
from tests.lake.factories import iceberg_schema

Row = tuple[Any, ...]
LOG = pa.schema(
    [("region", pa.string()), ("id", pa.int64()), ("ts", pa.int64()), ("op", pa.string()), ("name", pa.string())]
)
TEXT = "region string, id long, ts long, op string, name string"
CUSTOMERS = TableName("ods", "customers")
DELETES = '"t1"."op" = \'D\''


def customers(**changes: Any) -> Source:
    """Return a source that applies changes of customers."""
    origin = Changes(Files("cdc/*.jsonl", "jsonl", parse_columns(TEXT)), ("region", "id"), ("ts",), "op = 'D'", 1)
    source = Source(
        CUSTOMERS, replace(origin, **{k: v for k, v in changes.items() if k != "on_bad"}), SourceLocation("f.py", 1)
    )
    return replace(source, on_bad=changes.get("on_bad", "stop"))


@dataclass
class Applying:
    """A log, and the table that follows from it."""

    store: Store
    source: Source
    log: TableVersion | None = None
    head: TableVersion | None = None
    done: AppliedChanges | None = None
    choose_runner: ChooseRunner = run_in_process

    def take(self, *batches: Sequence[Row]) -> None:
        """Append rows to the log, one data file for each batch."""
        if self.log is None:
            location, _ = table_metadata.create_table(self.store, log_table_of(CUSTOMERS), iceberg_schema(LOG))
            self.log = TableVersion(location, content_of_files(None, ()))
        metadata = table_metadata.load_metadata(self.store, self.log.location)
        files = []
        for batch in batches:
            rows = pa.Table.from_pylist([dict(zip(LOG.names, row, strict=True)) for row in batch], LOG)
            files += parquet_writer.write_rows(self.store, metadata, rows.to_batches())
        self._edit(snapshots.VersionEdit(files), [file.file_path for file in files])

    def lose(self, number: int) -> None:
        """Take a data file out of the log, as when a file of its source changes."""
        assert self.log is not None
        gone = sorted(
            read_entries(self.store, table_metadata.load_metadata(self.store, self.log.location)),
            key=lambda one: one.path,
        )
        self._edit(snapshots.VersionEdit(removed=[gone[number]]), [f"without {gone[number].path}"])

    def _edit(self, edit: snapshots.VersionEdit, identities: Iterable[str]) -> None:
        assert self.log is not None
        location = snapshots.stage_version(self.store, self.log.location, edit)
        self.log = TableVersion(location, content_of_files(self.log.content, identities))

    def apply(self, deletes: str | None = DELETES) -> AppliedChanges:
        assert self.log is not None
        self.done = stage_changes(
            self.store,
            self.source,
            self.log,
            self.head,
            deletes,
            report_progress=lambda *_: None,
            choose_runner=self.choose_runner,
        )
        self.head = TableVersion(self.done.location, compute_content_id(self.source, self.log.content))
        return self.done

    def rows(self, head: TableVersion | None = None) -> list[Row]:
        """Return the table's rows, or those of the log, sorted."""
        at = head or self.head
        assert at is not None
        with connect_duckdb() as con:
            found = con.execute(rows_sql(self.store, table_metadata.load_metadata(self.store, at.location))).fetchall()
        return sorted(found, key=repr)


def expected(log: Iterable[Row], scd: int) -> list[Row]:
    """Return what ought to follow from a log of customers, computed row by row."""
    found: list[Row] = []
    ordered = sorted(set(log), key=lambda row: (row[:2], row[2], row[3] == "D", _tie(row)))
    for _, group in itertools.groupby(ordered, key=lambda row: row[:2]):
        last_at = {row[2]: row for row in group}  # of rows at the same place the last one counts
        versions = list(last_at.values())
        if scd == 1:
            found += [row for row in versions[-1:] if row[3] != "D"]
            continue
        ends = [*(row[2] for row in versions[1:]), None]
        found += [(*row, row[2], end) for row, end in zip(versions, ends, strict=True) if row[3] != "D"]
    return sorted(found, key=repr)


def _tie(row: Row) -> tuple[Any, ...]:
    named = dict(zip(LOG.names, row, strict=True))
    return tuple((named[name] is not None, named[name]) for name in sorted(named))
