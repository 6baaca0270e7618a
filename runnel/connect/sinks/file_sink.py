"""Deliver a table to a file. It is written to a staging folder and then renamed, so that nobody sees half a file."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.file_locations import FileLocation
from runnel.connect.sinks.folder_layout import write_files
from runnel.connect.sinks.sink_target import DeliveredRows, StatelessSink
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Sink
from runnel.errors import RunnelError, Unreachable
from runnel.lake.scan.duckdb_types import quote_literal
from runnel.names import quote_value

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange

_FORMATS = {"csv": "csv", "jsonl": "json", "json": "json", "parquet": "parquet"}
COMPRESSIONS = {"gz": "gzip", "zst": "zstd"}
_CSV_OPTIONS = {"delimiter": "DELIMITER", "null": "NULLSTR", "quote": "QUOTE", "escape": "ESCAPE"}


@dataclass(frozen=True)
class FileErrors:
    """The names that errors of a sink of files have."""

    glob: str
    at: str

    @contextmanager
    def translate(self, location: FileLocation) -> Iterator[None]:
        """Turn errors of the folder or object store into errors that a user can act on."""
        try:
            yield
        except OSError as error:  # not chained: the full text of an object store's error may contain its keys
            text, is_transient = location.describe_error(error)
            what = f"{quote_value(self.glob)} can't be written: {text}"
            if is_transient:
                raise Unreachable("SINK_UNREACHABLE", what, at=self.at, fix=location.fix) from None
            raise RunnelError("SINK_FILE", what, at=self.at, fix=location.fix) from None


class BaseFileSink(StatelessSink):
    """The common base of file and folder sinks."""

    def __init__(self, sink: Sink, target: Files, location: FileLocation) -> None:
        self._sink = sink
        self._target = target
        self._location = location
        self._errors = FileErrors(target.glob, str(sink.place))

    def _copy_options(self, compression: str | None) -> list[str]:
        """Return the options of DuckDB's COPY for the format."""
        target, declared_options = self._target, dict(self._target.options)
        copy_options = [f"FORMAT {_FORMATS[target.format]}"]
        if target.format == "csv":
            copy_options.append(f"HEADER {declared_options.get('header', 'true')}")
            copy_options += [
                f"{_CSV_OPTIONS[name]} {quote_literal(value)}"
                for name, value in declared_options.items()
                if name in _CSV_OPTIONS
            ]
        elif target.format != "parquet":
            copy_options.append(f"ARRAY {str(target.format == 'json').lower()}")
        copy_options.append(
            "COMPRESSION zstd" if target.format == "parquet" else f"COMPRESSION {compression or 'none'}"
        )
        return copy_options

    def _translate_errors(self) -> AbstractContextManager[None]:
        return self._errors.translate(self._location)


class FileSink(BaseFileSink):
    """One file with all rows of the table."""

    @property
    def _file_name(self) -> str:
        return self._target.glob.rpartition("/")[2]

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the recorded commit; None if the file does not exist."""
        with self._translate_errors():
            return recorded if self._location.has([self._file_name]) else None

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Write the table to a staging folder, then replace the file; for a dropped table remove the file."""
        with self._translate_errors():
            if change.is_dropped:
                self._location.remove([self._file_name])
                return DeliveredRows(0)
            with self._location.staging() as folder:
                return DeliveredRows(self._replace_file(change, folder / self._file_name))

    def _replace_file(self, change: "OutgoingChange", staged_path: Path) -> int:
        options = ", ".join(self._copy_options(COMPRESSIONS.get(staged_path.suffix[1:])))
        write_files(
            change.connection, f"COPY (FROM {change.all_rows_view()}) TO {quote_literal(str(staged_path))} ({options})"
        )
        failpoints.reach(failpoints.SENDING)
        for _ in self._location.put({self._file_name: staged_path}):
            pass
        return change.row_count
