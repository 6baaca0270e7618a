"""Apply a change log: stage the next version of the table that is derived from it. Publishes nothing.

Only keys of log rows that were added or removed are considered, and only those whose rows in the table differ are
written: other rows stay in their files. If that can't be determined, the table is rebuilt from the whole log.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.changes import failpoints
from runnel.connect.changes.change_errors import describe_errors_of
from runnel.connect.changes.change_sql import ChangeRule, build_change_rule
from runnel.connect.changes.key_lookup import KeyLookup
from runnel.connect.changes.log_buckets import BucketApplier, LogSplitter, write_selected_rows
from runnel.connect.changes.log_update import LogChange, LogUpdate, find_touched_keys, update_buckets
from runnel.connect.changes.target_version import build_log_summary, create_target, evolve_target, find_applied_log
from runnel.connect.feed.key_matches import KeyedVersion
from runnel.connect.feed.row_displacer import DisplacedFiles, displace_stored_places
from runnel.connect.feed.row_places import remove_scratch_files
from runnel.connect.feed.upsert import KeyPaths, displace_rows
from runnel.connect.ingest.target_version import WriteTarget
from runnel.declare.model.flow import Source
from runnel.errors import CorruptData, RunnelError
from runnel.lake.diff.file_delta import compute_file_delta, find_differing_files
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_literal
from runnel.lake.scan.row_pieces import count_buckets
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.scan.scan_units import build_scan_units, count_bytes
from runnel.lake.work_runner import ChooseRunner, WorkContext, WorkRunner, run_in_process
from runnel.model.progress import Progress
from runnel.model.table_version import TableVersion
from runnel.model.work_place import EXECUTORS, WorkPlace

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.store import Store

WHOLE_BYTES = 64 * 1024 * 1024  # a smaller log is applied at once in this process: buckets would only cost time
_KEYS, _RESULT, _DIFFERING = "runnel_keys", "runnel_made", "runnel_differing"


@dataclass(frozen=True)
class AppliedChanges:
    """A staged version. `rows` were written; `left_out` rows of the log are null in the key or the sequence."""

    location: str
    rows: int
    left_out: int = 0
    place: WorkPlace | None = None  # where the rows were applied


def stage_changes(
    store: "Store",
    source: Source,
    log: TableVersion,
    base: TableVersion | None,
    delete_condition: str | None,
    *,
    report_progress: Progress,
    choose_runner: ChooseRunner = run_in_process,
) -> AppliedChanges:
    """Stage the version that is derived from a log; `base` is the current version of the table, if any.

    `delete_condition` is the SQL condition of a delete, as in `ChangeRule`. Rows are applied where `choose_runner`
    says.
    """
    rule = build_change_rule(source, table_metadata.load_metadata(store, log.location).schema(), delete_condition)
    errors = describe_errors_of(source)
    with errors.describe(), temp_dirs.create_scoped("changes") as folder, connect_duckdb() as con:
        work = WorkContext(choose_runner, report_progress)
        applier = _ChangeApplier(store, source, rule, log, con, Path(folder), work)
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
    work: WorkContext

    def rebuild_table(self, base: TableVersion | None) -> AppliedChanges:
        """Stage the table that is derived from the whole log."""
        target = create_target(self.store, self.source, self.rule, base.location if base else None)
        log_entries = list(read_entries(self.store, self.log_metadata))
        log_bytes = count_bytes(log_entries)
        runner = self.work.choose_runner(log_bytes)
        bucket_count = count_buckets(log_bytes, runner.parallel_units)
        if runner.place.name == EXECUTORS or log_bytes > WHOLE_BYTES:
            added, left_out_count = self.apply_in_buckets(runner, log_entries, target, bucket_count)
        else:
            rows = rows_sql(self.store, self.log_metadata, log_entries)
            left_out_count = self.count_left_out(rows)
            added = self.write_rows(self.rule.build_table_select(rows), target)
        failpoints.reach(failpoints.APPLIED)
        location = stage_version(self.store, target.location, VersionEdit(added, summary=build_log_summary(self.log)))
        failpoints.reach(failpoints.STAGED)
        return AppliedChanges(location, _count_rows(added), left_out_count, runner.place)

    def apply_in_buckets(
        self, runner: WorkRunner, log_entries: "list[FileEntry]", target: WriteTarget, bucket_count: int
    ) -> "tuple[list[DataFile], int]":
        """Write the table's rows, each bucket of keys on its own; return the files and how many rows were left out."""
        units = build_scan_units(log_entries, runner.parallel_units)
        log_metadata, target_metadata = drop_history(self.log_metadata), drop_history(target.metadata)
        errors = describe_errors_of(self.source)
        splitter = LogSplitter(self.store.files, log_metadata, self.rule, errors, bucket_count)
        applier = BucketApplier(self.store.files, log_metadata, self.rule, errors, target_metadata)
        if runner.place.name == EXECUTORS:
            report_units = self.work.make_unit_reporter("applying")
            buckets = runner.run_shuffled(splitter, units, applier, bucket_count, report_units)
            self.check_left_out(sum(bucket.left_out for bucket in buckets))
            return [file for bucket in buckets for file in bucket.files], sum(bucket.left_out for bucket in buckets)
        writer = RowWriter(self.store, target.metadata)  # one for all buckets, so that each partition has few files
        counts = runner.run_shuffled(
            splitter,
            units,
            lambda _bucket, pieces: applier.write_bucket(writer, pieces, self.report_rows),
            bucket_count,
        )
        added = writer.close()
        self.check_left_out(sum(counts))
        return added, sum(counts)

    def update_table(self, base: TableVersion) -> AppliedChanges | None:
        """Stage `base` with the changes of the log since it was applied; None if these can't be determined."""
        applied_log = find_applied_log(self.store, self.source, base)
        target = evolve_target(self.store, self.source, self.rule, base.location) if applied_log else None
        if applied_log is None or target is None:
            return None
        try:
            differing_files = self.find_differing_files(applied_log)
        except CorruptData:  # the version of the log that was applied no longer exists
            return None
        if differing_files is None:
            return None
        base_metadata = table_metadata.load_metadata(self.store, base.location)
        log_entries, table_entries = (
            list(read_entries(self.store, metadata)) for metadata in (self.log_metadata, base_metadata)
        )
        change = LogChange(*differing_files, log_entries, table_entries)
        runner = self.work.choose_runner(change.differing_bytes + self.count_key_bytes(base_metadata, change))
        if runner.place.name == EXECUTORS or change.differing_bytes > WHOLE_BYTES:
            return self.update_in_buckets(runner, base, target, change)
        added_rows = self.store_touched_keys(change)
        left_out_count = self.count_left_out(added_rows)
        self.find_differing_keys(base, target)
        rows = f"SELECT made.* FROM {_RESULT} AS made SEMI JOIN {_DIFFERING} USING ({self.rule.key_columns_sql})"
        added = self.write_rows(rows, target)
        failpoints.reach(failpoints.APPLIED)
        location = self.stage_replaced_rows(base.location, target, added)
        failpoints.reach(failpoints.STAGED)
        return AppliedChanges(location, _count_rows(added), left_out_count, runner.place)

    def update_in_buckets(
        self, runner: WorkRunner, base: TableVersion, target: WriteTarget, change: LogChange
    ) -> AppliedChanges:
        """Stage `base` with the changes of the log; keys meet in buckets."""
        store_files = self.store.files
        base_metadata = table_metadata.load_metadata(self.store, base.location)
        log_metadata, target_metadata = drop_history(self.log_metadata), drop_history(target.metadata)
        update = LogUpdate(store_files, self.rule, describe_errors_of(self.source), log_metadata, target_metadata)
        touched_keys = find_touched_keys(runner, update, change, self.work.make_unit_reporter("comparing"))
        self.check_left_out(touched_keys.left_out)
        buckets = update_buckets(runner, update, change, touched_keys, self.work.make_unit_reporter("applying"))
        added = [file for bucket in buckets for file in bucket.files]
        failpoints.reach(failpoints.APPLIED)
        places = [bucket.places for bucket in buckets]
        try:
            version = KeyedVersion(store_files, base_metadata, self.rule.key)
            displaced_files = displace_stored_places(runner, version, target.metadata, change.table, places)
        finally:
            remove_scratch_files(store_files, [part.location for part in places if part.location is not None])
        location = self.stage_edit(base.location, target, added, displaced_files)
        failpoints.reach(failpoints.STAGED)
        return AppliedChanges(location, _count_rows(added), touched_keys.left_out, runner.place)

    def count_key_bytes(self, base_metadata: "TableMetadata", change: LogChange) -> int:
        """Return how many bytes of the log and of the table their key columns have."""
        return sum(
            KeyedVersion(self.store.files, metadata, self.rule.key).count_key_bytes(manifest_entries)
            for metadata, manifest_entries in ((self.log_metadata, change.log), (base_metadata, change.table))
        )

    def find_differing_files(self, applied_log: str) -> "tuple[list[FileEntry], list[FileEntry]] | None":
        """Return the log's files that were removed and added since a version of it; None if it is another table."""
        if table_metadata.load_metadata(self.store, applied_log).table_uuid != self.log_metadata.table_uuid:
            return None
        changed_files = compute_file_delta(self.store, applied_log, self.log.location)
        removed, added = find_differing_files(self.store, applied_log, self.log.location, changed_files)
        return list(removed), list(added)

    def store_touched_keys(self, change: LogChange) -> str:
        """Store the keys of log rows that were added or removed; return a SELECT of the added rows."""
        # Both with the current columns of the log: a row that lacks a new column equals one that is null there.
        removed_rows, added_rows = (
            rows_sql(self.store, self.log_metadata, manifest_entries)
            for manifest_entries in (change.removed, change.added)
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
            displace_rows(self.store, base, target.metadata, added, self.rule.key, key_paths=KeyPaths(keys_path))
            if count
            else DisplacedFiles()
        )
        return self.stage_edit(base, target, added, displaced_files)

    def stage_edit(
        self, base: str, target: WriteTarget, added: "list[DataFile]", displaced_files: DisplacedFiles
    ) -> str:
        """Stage a version with added and displaced rows."""
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
        write_selected_rows(self.con, rows, writer, self.report_rows)
        return writer.close()

    def report_rows(self, rows: int) -> None:
        """Report how many rows were written."""
        if self.work.report_progress is not None:
            self.work.report_progress("applying", rows, None)

    def count_left_out(self, rows: str) -> int:
        """Return how many rows can't be applied; raise if there are any and the source has on_bad="stop"."""
        sql = f"SELECT count(*) FROM ({rows}) WHERE NOT ({self.rule.is_applicable_sql})"
        count = int(self.con.execute(sql).fetchall()[0][0])
        self.check_left_out(count)
        return count

    def check_left_out(self, count: int) -> None:
        """Raise if rows can't be applied and the source has on_bad="stop"."""
        if count and self.source.on_bad == "stop":
            columns = ", ".join(f"`{name}`" for name in (*self.rule.key, *self.rule.sequence))
            what = f"{count:,} rows of the log of `{self.source.table}` are null in one of {columns}"
            fix = 'name columns that are never null, or leave such rows out with on_bad="drop"'
            raise RunnelError("CHANGES_NULL", what, at=str(self.source.place), fix=fix)

    @property
    def log_metadata(self) -> "TableMetadata":
        return table_metadata.load_metadata(self.store, self.log.location)


def _count_rows(files: "list[DataFile]") -> int:
    return sum(file.record_count for file in files)
