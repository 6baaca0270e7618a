"""A file as a sink. It is written aside, and takes its place at once, so that nobody sees half of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.file_locations import Place
from runnel.connect.sinks.sink_target import Forgetful
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Sink
from runnel.errors import RunnelError, Unreachable
from runnel.lake.scan.duckdb_types import literal
from runnel.names import shown

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import Change

_FORMATS = {"csv": "csv", "jsonl": "json", "json": "json", "parquet": "parquet"}
PACKED = {"gz": "gzip", "zst": "zstd"}
_CSV = {"delimiter": "DELIMITER", "null": "NULLSTR", "quote": "QUOTE", "escape": "ESCAPE"}


class FilesOutlet(Forgetful):
    """What a file and a folder have in common."""

    def __init__(self, sink: Sink, target: Files, place: Place) -> None:
        self._sink = sink
        self._target = target
        self._place = place

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

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what is wrong with the place into what a user can act on."""
        try:
            yield
        except OSError as error:  # not kept as the cause: what a store says in full may have its keys
            text, may_pass = self._place.said(error)
            what, at = f"{shown(self._target.glob)} can't be written: {text}", str(self._sink.place)
            if may_pass:
                raise Unreachable("SINK_UNREACHABLE", what, at=at, fix=self._place.fix) from None
            raise RunnelError("SINK_FILE", what, at=at, fix=self._place.fix) from None


class FileOutlet(FilesOutlet):
    """One file with all rows of the table."""

    @property
    def _name(self) -> str:
        return self._target.glob.rpartition("/")[2]

    def position(self, recorded: str | None) -> str | None:
        """Return what is recorded, nothing where the file is gone."""
        with self._told():
            return recorded if self._place.has([self._name]) else None

    def take(self, change: "Change") -> int:
        """Write the table aside, and let it take the place of the file; a table that was dropped takes it along."""
        with self._told():
            if change.is_dropped:
                self._place.remove([self._name])
                return 0
            with self._place.staging() as folder:
                return self._replace(change, folder / self._name)

    def _replace(self, change: "Change", aside: Path) -> int:
        options = ", ".join(self._options(PACKED.get(aside.suffix[1:])))
        write(change, f"COPY (FROM {change.whole()}) TO {literal(str(aside))} ({options})")
        failpoints.reach(failpoints.SENDING)
        for _ in self._place.put({self._name: aside}):
            pass
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
