"""A file as a sink. It is written beside its place, and takes it by renaming, so that nobody sees half of it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.outlet import Forgetful
from runnel.declare.flow import Sink
from runnel.declare.origin import Files
from runnel.errors import RunnelError
from runnel.lake.duckdb_types import literal

if TYPE_CHECKING:
    from runnel.connect.sinks.change import Change

_FORMATS = {"csv": "csv", "jsonl": "json", "json": "json", "parquet": "parquet"}
PACKED = {"gz": "gzip", "zst": "zstd"}
_CSV = {"delimiter": "DELIMITER", "null": "NULLSTR", "quote": "QUOTE", "escape": "ESCAPE"}


class FilesOutlet(Forgetful):
    """What a file and a folder have in common."""

    def __init__(self, sink: Sink, target: Files, path: Path) -> None:
        self._sink = sink
        self._target = target
        self._path = path

    def _options(self, packed: str | None) -> list[str]:
        """Return how DuckDB writes the format."""
        target, given = self._target, dict(self._target.options)
        found = [f"FORMAT {_FORMATS[target.format]}"]
        if target.format == "csv":
            found.append(f"HEADER {given.get('header', 'true')}")
            found += [f"{_CSV[name]} {literal(value)}" for name, value in given.items() if name in _CSV]
        elif target.format != "parquet":
            found.append(f"ARRAY {str(target.format == 'json').lower()}")
        found.append("COMPRESSION zstd" if target.format == "parquet" else f"COMPRESSION {packed or 'none'}")
        return found

    def _failed(self, error: OSError) -> RunnelError:
        what = f"{self._path} can't be written: {error.strerror or error}"
        fix = "check the folder, its permissions and the space left; the next run goes on"
        return RunnelError("SINK_FILE", what, at=str(self._sink.place), fix=fix)


class FileOutlet(FilesOutlet):
    """One file with all rows of the table."""

    def position(self, recorded: str | None) -> str | None:
        """Return what is recorded, nothing where the file is gone."""
        return recorded if self._path.exists() else None

    def take(self, change: "Change") -> int:
        """Write the table beside the file, and let it take its place; a table that was dropped takes it along."""
        try:
            if change.is_dropped:
                self._path.unlink(missing_ok=True)
                return 0
            return self._replace(change)
        except OSError as error:
            raise self._failed(error) from error

    def _replace(self, change: "Change") -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(f".{self._path.name}.runnel")  # one name: what a crash left is written over
        options = ", ".join(self._options(PACKED.get(self._path.suffix[1:])))
        try:
            write(change, f"COPY (FROM {change.whole()}) TO {literal(str(aside))} ({options})")
            failpoints.reach(failpoints.SENDING)
            move(aside, self._path)
        finally:
            aside.unlink(missing_ok=True)
        sync(self._path.parent)
        return change.rows


def write(change: "Change", sql: str) -> None:
    """Let DuckDB write files."""
    import duckdb

    try:
        change.connection.execute(sql)
    except duckdb.IOException as error:
        if "No files found" in str(error) or "Could not read" in str(error):
            raise  # what can't be read is a file of the lake
        raise OSError(None, str(error).splitlines()[0]) from error


def move(source: Path, target: Path) -> None:
    """Let a file take the place of another one, once all of it is on disk."""
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)


def sync(folder: Path) -> None:
    """Let the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
