"""A folder as a sink: one file for each partition, and a manifest. Only partitions that changed are replaced."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.column_lookup import check_columns
from runnel.connect.sinks.file_sink import PACKED, FilesOutlet, write
from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import literal, quoted

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import Change

MANIFEST = "_manifest.json"
_MARK = internal_column("folder")  # a file of a partition needs a column besides those of its folder


class FolderOutlet(FilesOutlet):
    """A folder: one file, or one in each folder that the partition's values name, and a manifest that lists them."""

    def position(self, recorded: str | None) -> str | None:
        """Return what is recorded, nothing where the manifest or one of its files is gone."""
        with self._told():
            listed = self._listed()
            return recorded if listed is not None and self._place.has(listed) else None

    def take(self, change: "Change") -> int:
        """Replace the files of the partitions that changed, then the manifest."""
        self._check(change)
        with self._told(), self._place.staging() as folder:
            return self._replace(change, folder)

    def _replace(self, change: "Change", folder: Path) -> int:
        listed = self._listed() or {}
        new, touched = folder / "new", folder / "touched"
        names = ", ".join(map(quoted, self._target.partition))
        if change.is_whole or not names:
            rows, stale = f"FROM {change.whole()}", set(listed)
        else:
            differs = f"SELECT {names} FROM {change.came()} UNION SELECT {names} FROM {change.gone()}"
            change.connection.execute(f"CREATE TEMP TABLE touched AS {differs}")
            same = " AND ".join(
                f"w.{quoted(one)} IS NOT DISTINCT FROM t.{quoted(one)}" for one in self._target.partition
            )
            rows = f"SELECT w.* FROM {change.whole()} AS w WHERE EXISTS (SELECT 1 FROM touched AS t WHERE {same})"
            self._copy(change, f"SELECT *, 1 AS {quoted(_MARK)} FROM touched", touched, ["FORMAT csv"], "csv")
            stale = {name for name in listed if (touched / name).parent.is_dir()}
        options, ending = self._options(PACKED.get(self._target.compress or "")), self._ending()
        self._copy(change, rows, new, options, ending)
        came = {str(path.relative_to(new)): path for path in sorted(new.rglob("*")) if path.is_file()}
        sizes = {name: {"bytes": path.stat().st_size} for name, path in came.items()}
        for _ in self._place.put(came):
            failpoints.reach(failpoints.REPLACING)
        gone = stale - came.keys()
        self._note(change, folder / MANIFEST, {name: one for name, one in listed.items() if name not in gone} | sizes)
        self._place.remove(gone)
        return sum(change.sizes) if not change.is_whole and names else change.rows

    def _copy(self, change: "Change", rows: str, to: Path, options: list[str], ending: str) -> None:
        """Write rows below a folder, laid out as the sink is; where there are none it stays empty."""
        to.mkdir()
        if self._target.partition and change.one(f"SELECT 1 FROM ({rows}) LIMIT 1") is None:
            return
        if self._target.partition:
            names = ", ".join(map(quoted, self._target.partition))
            most = "SET partitioned_write_max_open_files = 10000"  # so that each partition is one file
            change.connection.execute(most)
            laid = [f"PARTITION_BY ({names})", "FILENAME_PATTERN 'part-{i}'", f"FILE_EXTENSION '{ending}'"]
            write(change, f"COPY ({rows}) TO {literal(str(to))} ({', '.join([*options, *laid])}, OVERWRITE_OR_IGNORE)")
        else:
            path = to / f"part-0.{ending}"
            write(change, f"COPY ({rows}) TO {literal(str(path))} ({', '.join(options)})")

    def _check(self, change: "Change") -> None:
        check_columns(self._sink, change, self._target.partition)
        known = {column.name for column in change.columns}
        if known and known <= set(self._target.partition):
            what = f"every column of `{change.table}` names a folder, so that its files would be empty"
            raise Mistake("SINK_PARTITION", what, at=str(self._sink.place), fix="partition by fewer columns")

    def _ending(self) -> str:
        return self._target.format + (f".{self._target.compress}" if self._target.compress else "")

    def _listed(self) -> dict[str, Any] | None:
        """Return the files of the manifest, by path; None where there is no manifest."""
        try:
            return dict(json.loads(self._place.read(MANIFEST) or "")["files"])
        except (ValueError, KeyError, TypeError):
            return None

    def _note(self, change: "Change", aside: Path, files: dict[str, Any]) -> None:
        told = {"table": str(change.table), "commit": change.commit, "rows": change.rows}
        aside.write_text(json.dumps({**told, "files": dict(sorted(files.items()))}, indent=1))
        for _ in self._place.put({MANIFEST: aside}):
            pass
