"""Deliver a table to a folder: one file for each partition, and a manifest. Only changed partitions are replaced."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.file_locations import StagedFile, list_files
from runnel.connect.sinks.file_sink import COMPRESSIONS, BaseFileSink
from runnel.connect.sinks.folder_layout import FolderLayout, select_touched_sql
from runnel.connect.sinks.sink_target import DeliveredRows, check_sink_columns
from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.lake.work_runner import WorkRunner

MANIFEST = "_manifest.json"
_MARK_COLUMN = internal_column("folder")  # a partition's file needs a column besides the partition columns


class FolderWriter(Protocol):
    """Writes the files of a change, in this process or in work units."""

    is_staged: ClassVar[bool]  # whether units staged the files, so that the location knows where they are

    def find_touched(self) -> "tuple[pa.Table, int]":
        """Return the partitions in which rows were added or removed, and how many rows."""

    def write(self, touched: "pa.Table | None") -> tuple[StagedFile, ...]:
        """Write all rows, or those of the touched partitions."""


class FolderSink(BaseFileSink):
    """A folder with one file, or one file per partition folder, and a manifest that lists them."""

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the recorded commit; None if the manifest or one of its files does not exist."""
        with self._translate_errors():
            manifest_files = self._read_manifest()
            return recorded if manifest_files is not None and self._location.has(manifest_files) else None

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Replace the files of the partitions that changed, then the manifest."""
        self._check_partition(change)
        runner = self._choose_runner(change)
        with self._translate_errors(), self._location.staging() as folder, ExitStack() as stack:
            writer: FolderWriter = _ProcessFolderWriter(change, self._layout, folder)
            if runner is not None and runner.place.name == EXECUTORS:
                writer = self._build_unit_writer(
                    change, runner, stack.enter_context(self._location.unit_staging(folder))
                )
            count = self._replace_files(change, folder, writer)
            return DeliveredRows(count, runner.place if runner is not None else None)

    def _choose_runner(self, change: "OutgoingChange") -> "WorkRunner | None":
        """Return where files are written; None if there is no choice."""
        if change.work is None:
            return None
        from runnel.lake.scan.scan_units import count_bytes, list_outside_paths

        changed_files = change.changed_files
        is_full = change.is_full or not self._target.partition
        files = change.list_all_files() if is_full else (*changed_files.old, *changed_files.new)
        local_path = self._location.local_path
        folders = [local_path] if local_path is not None else []
        outside_paths = list_outside_paths(change.store.warehouse, files)
        return change.work.choose_runner(count_bytes(files), [*folders, *outside_paths])

    def _build_unit_writer(self, change: "OutgoingChange", runner: "WorkRunner", staging: str) -> "FolderWriter":
        from runnel.connect.sinks.units.folder_writer import FolderTarget, UnitFolderWriter

        target = FolderTarget(self._layout, self._location, staging, self._errors)
        return UnitFolderWriter(change, runner, target)

    def _replace_files(self, change: "OutgoingChange", folder: Path, writer: "FolderWriter") -> int:
        manifest_files = self._read_manifest() or {}
        if change.is_full or not self._target.partition:
            touched, replaced_names, count = None, set(manifest_files), change.row_count
        else:
            touched, count = writer.find_touched()
            replaced_names = self._list_touched_files(change, folder / "touched", touched, manifest_files)
        new_files = _name_files(writer.write(touched))
        for _ in (
            self._location.put_staged(new_files)
            if writer.is_staged
            else self._location.put({name: Path(staged_file.staged_at) for name, staged_file in new_files.items()})
        ):
            failpoints.reach(failpoints.REPLACING)
        removed_names = replaced_names - new_files.keys()
        sizes = {name: {"bytes": staged_file.bytes} for name, staged_file in new_files.items()}
        self._write_manifest(
            change,
            folder / MANIFEST,
            {name: item for name, item in manifest_files.items() if name not in removed_names} | sizes,
        )
        self._location.remove(removed_names)
        return count

    def _list_touched_files(
        self, change: "OutgoingChange", folder: Path, touched: "pa.Table", names: Iterable[str]
    ) -> set[str]:
        """Return the files of the manifest that are in the folders of touched partitions."""
        change.connection.register("touched_partitions", touched)
        marked_rows = f"SELECT *, 1 AS {quote_identifier(_MARK_COLUMN)} FROM touched_partitions"
        FolderLayout(self._target.partition, ("FORMAT csv",), "csv").write(change.connection, marked_rows, folder)
        return {name for name in names if (folder / name).parent.is_dir()}

    @property
    def _layout(self) -> FolderLayout:
        options = self._copy_options(COMPRESSIONS.get(self._target.compress or ""))
        extension = self._target.format + (f".{self._target.compress}" if self._target.compress else "")
        return FolderLayout(self._target.partition, tuple(options), extension)

    def _check_partition(self, change: "OutgoingChange") -> None:
        check_sink_columns(self._sink, change, self._target.partition)
        existing_names = {column.name for column in change.columns}
        if existing_names and existing_names <= set(self._target.partition):
            what = f"every column of `{change.table}` names a folder, so that its files would be empty"
            raise Mistake("SINK_PARTITION", what, at=str(self._sink.place), fix="partition by fewer columns")

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


def _name_files(staged_files: Iterable[StagedFile]) -> dict[str, StagedFile]:
    """Return files by their final names. Values that differ may name the same folder, and are in several files then.

    >>> list(_name_files([StagedFile("day=1/part-0.csv.gz", "/a", 1), StagedFile("day=1/part-0.csv.gz", "/b", 1)]))
    ['day=1/part-0.csv.gz', 'day=1/part-0-1.csv.gz']
    """
    files: dict[str, StagedFile] = {}
    for staged_file in staged_files:
        name, number = staged_file.name, 0
        while name in files:
            folder, slash, base_name = staged_file.name.rpartition("/")
            stem, dot, extension = base_name.partition(".")
            number += 1
            name = f"{folder}{slash}{stem}-{number}{dot}{extension}"
        files[name] = staged_file
    return files


class _ProcessFolderWriter:
    """Writes the files in this process, into a folder that is renamed or uploaded."""

    is_staged: ClassVar[bool] = False

    def __init__(self, change: "OutgoingChange", layout: FolderLayout, folder: Path) -> None:
        self._change = change
        self._layout = layout
        self._folder = folder

    def find_touched(self) -> "tuple[pa.Table, int]":
        """Return the partitions in which rows were added or removed, and how many rows."""
        change, names = self._change, ", ".join(map(quote_identifier, self._layout.partition))
        sql = f"SELECT {names} FROM {change.added_view()} UNION SELECT {names} FROM {change.removed_view()}"
        return change.read_table(sql), sum(change.added_and_removed)

    def write(self, touched: "pa.Table | None") -> tuple[StagedFile, ...]:
        """Write all rows, or those of the touched partitions."""
        rows, folder = self._change.all_rows_view(), self._folder / "new"
        if touched is None:
            self._layout.write(self._change.connection, f"FROM {rows}", folder)
        else:
            self._change.connection.register("touched_partitions", touched)
            rows = select_touched_sql(rows, self._layout.partition, "touched_partitions")
            self._layout.write(self._change.connection, rows, folder)
        files = list_files(folder)
        return tuple(StagedFile(name, str(path), path.stat().st_size) for name, path in files.items())
