"""A source that is a function. Of its last state it returns the rows that are new, and the new state.

One that takes no state returns all rows there are. A run asks it once: what it returned is what is read.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import Fetched, News, Part, Progress, State
from runnel.declare.model.endpoints import Function
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError
from runnel.names import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK = "spark"  # a parameter of that name gets the session
_FIX = "return rows, or rows and the new state: return rows, {'since': last}"


class FunctionFeed:
    """The feed of a function. It can't say what is new without being called, so a run always calls it."""

    def __init__(self, source: Source, origin: Function, spark: "Callable[[], SparkSession] | None" = None) -> None:
        self._source = source
        self._function = origin.function
        names = list(inspect.signature(origin.function).parameters)
        self._takes_state = any(name != _SPARK for name in names)
        self._spark = spark if _SPARK in names else None

    def news(self, state: State | None) -> News:
        """Return that the function will be asked."""
        return News(f"asks {self._function.__name__}() for what is new")

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Call the function and keep its rows in a file."""
        tell("asking", 0, None)
        rows, after = self._returned(state)
        name = f"{self._function.__name__}()"
        part, digest = _kept(rows, folder, name, self._source)
        parts = (part,) if part is not None else ()
        state_after = after if after is not None else dict(state or {})
        if not self._takes_state:
            return Fetched(parts, state_after, f"function:{digest}", "replace")
        identity = f"function:{digest}:{json.dumps(state, sort_keys=True)}"
        key = self._source.key
        return Fetched(parts, state_after, identity, "upsert" if key else "append", key)

    def _returned(self, state: State | None) -> tuple[Any, State | None]:
        given = {_SPARK: self._spark()} if self._spark is not None else {}
        try:
            found = self._function(*([state] if self._takes_state else []), **given)
        except RunnelError:
            raise
        except Exception as error:
            what = f"the source `{self._source.table}` failed: {type(error).__name__}: {error}"
            raise RunnelError(
                "SOURCE_FUNCTION", what, at=str(self._source.place), fix="correct it, or what it asks"
            ) from error
        if inspect.isgenerator(found):
            found = list(found)
        if isinstance(found, tuple) and len(found) == 2 and (found[1] is None or isinstance(found[1], Mapping)):
            rows, after = found
        else:
            rows, after = found, None
        try:
            return rows, None if after is None else json.loads(json.dumps(dict(after)))
        except (TypeError, ValueError) as error:
            what = f"the state that the source `{self._source.table}` returns is not JSON: {error}"
            raise Mistake("SOURCE_STATE", what, at=str(self._source.place), fix="use texts, numbers, lists") from error


def _kept(rows: Any, folder: Path, name: str, source: Source) -> tuple[Part | None, str]:
    """Write what a function returned into a file; return it with the hash of its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: pa.Table | None = None
    if rows is None:
        return None, ""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    elif hasattr(rows, "toArrow"):  # a frame of Spark
        table = rows.toArrow()
    elif type(rows).__module__.startswith("pandas"):
        table = pa.Table.from_pandas(rows, preserve_index=False)
    if table is not None:
        if not table.num_rows:
            return None, ""
        path = folder / "rows.parquet"
        pq.write_table(table, path, compression="zstd")
        return Part(path, name, "parquet"), _hash(path)
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        what = f"the source `{source.table}` returned {shown(rows)}, which is no rows"
        raise Mistake("SOURCE_ROWS", what, at=str(source.place), fix=_FIX)
    path = folder / "rows.jsonl"
    with path.open("w") as out:
        for row in rows:
            if not isinstance(row, Mapping):
                what = f"the source `{source.table}` returned the row {shown(row)}, which is no mapping"
                raise Mistake("SOURCE_ROWS", what, at=str(source.place), fix="yield rows such as {'id': 1}")
            out.write(json.dumps(dict(row), default=str) + "\n")
    if not path.stat().st_size:
        return None, ""
    return Part(path, name, "jsonl"), _hash(path)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
