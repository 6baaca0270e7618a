"""Deliver a table to a folder: one file for each partition, and a manifest. Only changed partitions are replaced."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.file_sink import COMPRESSIONS, BaseFileSink, write_files
from runnel.connect.sinks.sink_target import check_sink_columns
from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange

MANIFEST = "_manifest.json"
_MARK_COLUMN = internal_column("folder")  # a partition's file needs a column besides the partition columns


class FolderSink(BaseFileSink):
    """A folder with one file, or one file per partition folder, and a manifest that lists them."""

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the recorded commit; None if the manifest or one of its files does not exist."""
        with self._translate_errors():
            manifest_files = self._read_manifest()
            return recorded if manifest_files is not None and self._location.has(manifest_files) else None

    def deliver(self, change: "OutgoingChange") -> int:
        """Replace the files of the partitions that changed, then the manifest."""
        self._check_partition(change)
        with self._translate_errors(), self._location.staging() as folder:
            return self._replace_files(change, folder)

    def _replace_files(self, change: "OutgoingChange", folder: Path) -> int:
        manifest_files = self._read_manifest() or {}
        new_folder, touched_folder = folder / "new", folder / "touched"
        names = ", ".join(map(quote_identifier, self._target.partition))
        if change.is_full or not names:
            rows, replaced_names = f"FROM {change.all_rows_view()}", set(manifest_files)
        else:
            changed_sql = f"SELECT {names} FROM {change.added_view()} UNION SELECT {names} FROM {change.removed_view()}"
            change.connection.execute(f"CREATE TEMP TABLE touched AS {changed_sql}")
            join_condition = " AND ".join(
                f"w.{quote_identifier(item)} IS NOT DISTINCT FROM t.{quote_identifier(item)}"
                for item in self._target.partition
            )
            rows = (
                f"SELECT w.* FROM {change.all_rows_view()} AS w WHERE EXISTS "
                f"(SELECT 1 FROM touched AS t WHERE {join_condition})"
            )
            self._copy_rows(
                change,
                f"SELECT *, 1 AS {quote_identifier(_MARK_COLUMN)} FROM touched",
                touched_folder,
                ["FORMAT csv"],
                "csv",
            )
            replaced_names = {name for name in manifest_files if (touched_folder / name).parent.is_dir()}
        options, extension = self._copy_options(COMPRESSIONS.get(self._target.compress or "")), self._file_extension()
        self._copy_rows(change, rows, new_folder, options, extension)
        new_files = {
            str(path.relative_to(new_folder)): path for path in sorted(new_folder.rglob("*")) if path.is_file()
        }
        sizes = {name: {"bytes": path.stat().st_size} for name, path in new_files.items()}
        for _ in self._location.put(new_files):
            failpoints.reach(failpoints.REPLACING)
        removed_names = replaced_names - new_files.keys()
        self._write_manifest(
            change,
            folder / MANIFEST,
            {name: item for name, item in manifest_files.items() if name not in removed_names} | sizes,
        )
        self._location.remove(removed_names)
        return sum(change.added_and_removed) if not change.is_full and names else change.row_count

    def _copy_rows(
        self, change: "OutgoingChange", rows: str, target_folder: Path, options: list[str], extension: str
    ) -> None:
        """Write rows into a folder with the sink's partitions; without rows the folder stays empty."""
        target_folder.mkdir()
        if self._target.partition and change.fetch_row(f"SELECT 1 FROM ({rows}) LIMIT 1") is None:
            return
        if self._target.partition:
            names = ", ".join(map(quote_identifier, self._target.partition))
            open_files_sql = "SET partitioned_write_max_open_files = 10000"  # so that each partition is one file
            change.connection.execute(open_files_sql)
            layout_options = [f"PARTITION_BY ({names})", "FILENAME_PATTERN 'part-{i}'", f"FILE_EXTENSION '{extension}'"]
            write_files(
                change,
                f"COPY ({rows}) TO {quote_literal(str(target_folder))} "
                f"({', '.join([*options, *layout_options])}, OVERWRITE_OR_IGNORE)",
            )
        else:
            path = target_folder / f"part-0.{extension}"
            write_files(change, f"COPY ({rows}) TO {quote_literal(str(path))} ({', '.join(options)})")

    def _check_partition(self, change: "OutgoingChange") -> None:
        check_sink_columns(self._sink, change, self._target.partition)
        existing_names = {column.name for column in change.columns}
        if existing_names and existing_names <= set(self._target.partition):
            what = f"every column of `{change.table}` names a folder, so that its files would be empty"
            raise Mistake("SINK_PARTITION", what, at=str(self._sink.place), fix="partition by fewer columns")

    def _file_extension(self) -> str:
        return self._target.format + (f".{self._target.compress}" if self._target.compress else "")

    def _read_manifest(self) -> dict[str, Any] | None:
        """Return the files of the manifest, by path; None if there is no manifest."""
        try:
            return dict(json.loads(self._location.read(MANIFEST) or "")["files"])
        except (ValueError, KeyError, TypeError):
            return None

    def _write_manifest(self, change: "OutgoingChange", staged_path: Path, files: dict[str, Any]) -> None:
        summary = {"table": str(change.table), "commit": change.commit, "rows": change.row_count}
        staged_path.write_text(json.dumps({**summary, "files": dict(sorted(files.items()))}, indent=1))
        for _ in self._location.put({MANIFEST: staged_path}):
            pass
