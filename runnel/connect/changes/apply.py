"""Apply a change log: stage the next version of the table that is derived from it. Publishes nothing.

Only keys of log rows that were added or removed are considered, and only those whose rows in the table differ are
written: other rows stay in their files. If that can't be determined, the table is rebuilt from the whole log.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.changes import failpoints
from runnel.connect.changes.change_sql import ChangeRule, build_change_rule, list_column_names, quote_columns
from runnel.connect.changes.key_lookup import KeyLookup
from runnel.connect.changes.target_version import build_log_summary, create_target, evolve_target, find_applied_log
from runnel.connect.feed.upsert import DisplacedFiles, displace_rows
from runnel.connect.ingest.target_version import WriteTarget
from runnel.declare.model.flow import Source
from runnel.errors import CorruptData, RunnelError
from runnel.lake.diff.file_delta import compute_file_delta, find_differing_files
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import DuckdbScanError, quote_literal
from runnel.lake.scan.scan_sql import rows_sql
from runnel.model.progress import Progress
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_KEYS, _RESULT, _DIFFERING = "runnel_keys", "runnel_made", "runnel_differing"


@dataclass(frozen=True)
class AppliedChanges:
    """A staged version. `rows` were written; `left_out` rows of the log are null in the key or the sequence."""

    location: str
    rows: int
    left_out: int = 0


def stage_changes(
    store: "Store",
    source: Source,
    log: TableVersion,
    base: TableVersion | None,
    delete_condition: str | None,
    *,
    report_progress: Progress,
) -> AppliedChanges:
    """Stage the version that is derived from a log; `base` is the current version of the table, if any.

    `delete_condition` is the SQL condition of a delete, as in `ChangeRule`.
    """
    rule = build_change_rule(source, table_metadata.load_metadata(store, log.location).schema(), delete_condition)
    with _describe_duckdb_errors(source), temp_dirs.create_scoped("changes") as folder, connect_duckdb() as con:
        applier = _ChangeApplier(store, source, rule, log, con, Path(folder), report_progress)
        applied_changes = applier.update_table(base) if base is not None else None
        return applied_changes or applier.rebuild_table(base)


@dataclass(frozen=True)
class _ChangeApplier:
    """Applies one change log."""

    store: "Store"
    source: Source
    rule: ChangeRule
    log: TableVersion
    con: "duckdb.DuckDBPyConnection"
    folder: Path
    report_progress: Progress

    def rebuild_table(self, base: TableVersion | None) -> AppliedChanges:
        """Stage the table that is derived from the whole log."""
        rows = rows_sql(self.store, self.log_metadata)
        left_out_count = self.count_left_out(rows)
        target = create_target(self.store, self.source, self.rule, base.location if base else None)
        added = self.write_rows(self.rule.build_table_select(rows), target)
        failpoints.reach(failpoints.APPLIED)
        location = stage_version(self.store, target.location, VersionEdit(added, summary=build_log_summary(self.log)))
        failpoints.reach(failpoints.STAGED)
        return AppliedChanges(location, _count_rows(added), left_out_count)

    def update_table(self, base: TableVersion) -> AppliedChanges | None:
        """Stage `base` with the changes of the log since it was applied; None if these can't be determined."""
        applied_log = find_applied_log(self.store, self.source, base)
        target = evolve_target(self.store, self.source, self.rule, base.location) if applied_log else None
        if applied_log is None or target is None:
            return None
        try:
            added_rows = self.find_touched_keys(applied_log)
        except CorruptData:  # the version of the log that was applied no longer exists
            return None
        if added_rows is None:
            return None
        left_out_count = self.count_left_out(added_rows)
        self.find_differing_keys(base, target)
        rows = f"SELECT made.* FROM {_RESULT} AS made SEMI JOIN {_DIFFERING} USING ({self.rule.key_columns_sql})"
        added = self.write_rows(rows, target)
        failpoints.reach(failpoints.APPLIED)
        location = self.stage_replaced_rows(base.location, target, added)
        failpoints.reach(failpoints.STAGED)
        return AppliedChanges(location, _count_rows(added), left_out_count)

    def find_touched_keys(self, applied_log: str) -> str | None:
        """Store the keys of log rows added or removed since a version of the log; return a SELECT of the added rows."""
        if table_metadata.load_metadata(self.store, applied_log).table_uuid != self.log_metadata.table_uuid:
            return None
        changed_files = compute_file_delta(self.store, applied_log, self.log.location)
        differing_entries = find_differing_files(self.store, applied_log, self.log.location, changed_files)
        # Both with the current columns of the log: a row that lacks a new column equals one that is null there.
        removed_rows, added_rows = (
            rows_sql(self.store, self.log_metadata, manifest_entries) for manifest_entries in differing_entries
        )
        self.con.execute(
            f"CREATE TEMP TABLE {_KEYS} AS "
            f"{self.rule.build_differing_keys_select(self.rule.columns, removed_rows, added_rows)}"
        )
        return added_rows

    def find_differing_keys(self, base: TableVersion, target: WriteTarget) -> None:
        """Store the new rows of the touched keys, and the keys whose rows in the table differ from them."""
        key_lookup = KeyLookup(self.store, self.con, _KEYS, self.rule.key)
        log_rows = key_lookup.build_select(self.log_metadata, list(read_entries(self.store, self.log_metadata)))
        self.con.execute(f"CREATE TEMP TABLE {_RESULT} AS {self.rule.build_table_select(log_rows)}")
        table_entries = read_entries(self.store, table_metadata.load_metadata(self.store, base.location))
        table_rows = key_lookup.build_select(target.metadata, list(table_entries))
        differing_keys = self.rule.build_differing_keys_select(self.rule.fields, f"SELECT * FROM {_RESULT}", table_rows)
        self.con.execute(f"CREATE TEMP TABLE {_DIFFERING} AS {differing_keys}")

    def stage_replaced_rows(self, base: str, target: WriteTarget, added: "list[DataFile]") -> str:
        """Stage a version in which the rows of differing keys are replaced by those of `added`."""
        keys_path = self.folder / "gone.parquet"
        count = self.con.execute(f"COPY {_DIFFERING} TO {quote_literal(str(keys_path))} (FORMAT parquet)").fetchall()[
            0
        ][0]
        displaced_files = (
            displace_rows(self.store, base, target.metadata, added, self.rule.key, removed_keys=keys_path)
            if count
            else DisplacedFiles()
        )
        edit = VersionEdit(
            [*added, *displaced_files.added],
            displaced_files.removed,
            updates=target.updates,
            summary=build_log_summary(self.log),
        )
        return stage_version(self.store, base, edit)

    def write_rows(self, rows: str, target: WriteTarget) -> "list[DataFile]":
        """Write rows into data files of the table."""
        writer = RowWriter(self.store, target.metadata)
        columns = quote_columns(list_column_names(target.metadata.schema().fields))
        for batch in self.con.sql(f"SELECT {columns} FROM ({rows})").to_arrow_reader(ROW_GROUP_ROWS):
            writer.write(batch)
            self.report_progress("applying", writer.rows, None)
        return writer.close()

    def count_left_out(self, rows: str) -> int:
        """Return how many rows can't be applied; raise if there are any and the source has on_bad="stop"."""
        sql = f"SELECT count(*) FROM ({rows}) WHERE NOT ({self.rule.is_applicable_sql})"
        count = int(self.con.execute(sql).fetchall()[0][0])
        if count and self.source.on_bad == "stop":
            columns = ", ".join(f"`{name}`" for name in (*self.rule.key, *self.rule.sequence))
            what = f"{count:,} rows of the log of `{self.source.table}` are null in one of {columns}"
            fix = 'name columns that are never null, or leave such rows out with on_bad="drop"'
            raise RunnelError("CHANGES_NULL", what, at=str(self.source.place), fix=fix)
        return count

    @property
    def log_metadata(self) -> "TableMetadata":
        return table_metadata.load_metadata(self.store, self.log.location)


def _count_rows(files: "list[DataFile]") -> int:
    return sum(file.record_count for file in files)


@contextmanager
def _describe_duckdb_errors(source: Source) -> Iterator[None]:
    """Turn DuckDB's errors into errors that a user can act on."""
    import duckdb

    at = str(source.place)
    try:
        yield
    except DuckdbScanError as error:
        what = f"the changes of `{source.table}` can't be applied: {error.what}"
        raise RunnelError("CHANGES_UNREADABLE", what, at=at, fix="rewrite the log with Spark") from error
    except duckdb.OutOfMemoryException as error:
        what = f"there is not enough memory or disk space to apply the changes of `{source.table}`"
        raise RunnelError("CHANGES_TOO_LARGE", what, at=at, fix="free some, or use a larger machine") from error
    except duckdb.IOException as error:
        what = f"a file of the lake can't be read: {str(error).splitlines()[0]}"
        raise CorruptData("LAKE_FILE_UNREADABLE", what, fix="run `runnel fsck` to see which commits need it") from error
    except duckdb.Error as error:
        what = f"`delete_when` of `{source.table}` fails for a row of its log: {str(error).splitlines()[0]}"
        raise RunnelError("CHANGES_CONDITION", what, at=at, fix="write it so that it works for every row") from error
