"""Read a source that is a Python function: given its last state, it returns the new rows and the new state.

A function without a state parameter returns all rows. A run calls it exactly once and reads what it returned.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.declare.model.endpoints import Function
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.model.progress import Progress
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK = "spark"  # a parameter of that name gets the session
_FIX = "return rows, or rows and the new state: return rows, {'since': last}"


class FunctionFeed:
    """The feed of a function. Only calling the function tells what is new, so every run calls it."""

    def __init__(self, source: Source, origin: Function, spark: "Callable[[], SparkSession] | None" = None) -> None:
        self._source = source
        self._function = origin.function
        names = list(inspect.signature(origin.function).parameters)
        self._takes_state = any(name != _SPARK for name in names)
        self._takes_spark = _SPARK in names
        self._spark = spark if self._takes_spark else None

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:  # noqa: ARG002 - part of the protocol
        """Return a summary that says that the function will be called."""
        summary = f"asks {self._function.__name__}() for what is new"
        return FeedChanges(summary, is_place_open=self._takes_spark)

    def fetch(
        self, state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Call the function and write its rows to files of this machine."""
        scratch = SharedScratch(WarehouseFiles(str(folder)), str(folder))
        fetched = self.fetch_frame(state, changes, folder, lambda: scratch, report_progress)
        parts = tuple(FetchedFile(Path(part.location), part.name, part.format) for part in fetched.shared_parts)
        return replace(fetched, parts=(*fetched.parts, *parts), shared_parts=())

    def fetch_frame(
        self,
        state: FeedState | None,
        _changes: FeedChanges,
        folder: Path,
        open_scratch: Callable[[], SharedScratch],
        report_progress: Progress,
    ) -> FetchedRows:
        """Call the function and write its rows to a file; those of a frame are written by Spark, never collected."""
        report_progress("asking", 0, None)
        rows, returned_state = self._call_function(state)
        name = f"{self._function.__name__}()"
        parts: tuple[FetchedFile, ...] = ()
        shared_parts: tuple[SharedFile, ...] = ()
        if hasattr(rows, "mapInArrow"):  # a frame of Spark
            from runnel.connect.feed.frame_writer import write_frame

            written = write_frame(rows, open_scratch(), name)
            shared_parts, digest = written.parts, written.identity
        else:
            part, digest = _write_rows(rows, folder, name, self._source)
            parts = (part,) if part is not None else ()
        state_after = returned_state if returned_state is not None else dict(state or {})
        if not self._takes_state:
            identity = f"function:{digest}"
            return FetchedRows(parts, state_after, identity, "replace", shared_parts=shared_parts)
        identity = f"function:{digest}:{json.dumps(state, sort_keys=True)}"
        key = self._source.key
        return FetchedRows(parts, state_after, identity, "upsert" if key else "append", key, shared_parts=shared_parts)

    def _call_function(self, state: FeedState | None) -> tuple[Any, FeedState | None]:
        arguments = {_SPARK: self._spark()} if self._spark is not None else {}
        try:
            result = self._function(*([state] if self._takes_state else []), **arguments)
        except RunnelError:
            raise
        except Exception as error:
            what = f"the source `{self._source.table}` failed: {type(error).__name__}: {error}"
            raise RunnelError(
                "SOURCE_FUNCTION",
                what,
                at=str(self._source.place),
                fix="correct the function, or the system that it reads",
            ) from error
        if inspect.isgenerator(result):
            result = list(result)
        if isinstance(result, tuple) and len(result) == 2 and (result[1] is None or isinstance(result[1], Mapping)):
            rows, new_state = result
        else:
            rows, new_state = result, None
        try:
            return rows, None if new_state is None else json.loads(json.dumps(dict(new_state)))
        except (TypeError, ValueError) as error:
            what = f"the state that the source `{self._source.table}` returns is not JSON: {error}"
            raise Mistake("SOURCE_STATE", what, at=str(self._source.place), fix="use texts, numbers, lists") from error


def _write_rows(rows: Any, folder: Path, name: str, source: Source) -> tuple[FetchedFile | None, str]:
    """Write the rows that a function returned to a file; return the file and the hash of its contents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: pa.Table | None = None
    if rows is None:
        return None, ""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    elif type(rows).__module__.startswith("pandas"):
        table = pa.Table.from_pandas(rows, preserve_index=False)
    if table is not None:
        if not table.num_rows:
            return None, ""
        path = folder / "rows.parquet"
        pq.write_table(table, path, compression="zstd")
        return FetchedFile(path, name, "parquet"), _hash_file(path)
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        what = f"the source `{source.table}` returned {quote_value(rows)}, which are not rows"
        raise Mistake("SOURCE_ROWS", what, at=str(source.place), fix=_FIX)
    path = folder / "rows.jsonl"
    with path.open("w") as out:
        for row in rows:
            if not isinstance(row, Mapping):
                what = f"the source `{source.table}` returned the row {quote_value(row)}, which is not a mapping"
                raise Mistake("SOURCE_ROWS", what, at=str(source.place), fix="yield rows such as {'id': 1}")
            out.write(json.dumps(dict(row), default=str) + "\n")
    if not path.stat().st_size:
        return None, ""
    return FetchedFile(path, name, "jsonl"), _hash_file(path)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
