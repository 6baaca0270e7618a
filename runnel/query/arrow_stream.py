"""Answers as an Arrow stream: how the service sends them, and how a client takes them up. Types stay exact.

The schema's metadata tell who answered, and at which commit. What goes wrong in the middle is told by the metadata of
a last, empty batch; after that the stream does not end as it should, so that nobody takes it for the whole answer.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from io import RawIOBase
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError, error_of

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.query.result import Result

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
_ABOUT, _WRONG = b"runnel", b"runnel.error"


class Cut(Exception):
    """The answer ended in the middle; what went wrong has been told in the stream."""


def sent(result: "Result", limit: int | None = None) -> Iterator[bytes]:
    """Yield an answer as it goes over the wire; raise Cut after what went wrong in the middle."""
    import pyarrow as pa

    about = {"engine": result.engine, "at": result.at, "reason": result.reason}
    schema, sink = result.schema.with_metadata({_ABOUT: json.dumps(about).encode()}), _Sink()
    writer = pa.ipc.new_stream(sink, schema)
    yield sink.take()
    try:
        for batch in _first(result.batches(), limit):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            yield sink.take()
    except RunnelError as error:
        told = {_WRONG: json.dumps(error.told()).encode()}
        writer.write_batch(pa.RecordBatch.from_pylist([], schema), custom_metadata=told)
        yield sink.take()
        raise Cut from error
    writer.close()
    yield sink.take()


class Received:
    """The rows of an answer as they come over the wire; `lost` says what it means that they stop coming."""

    def __init__(self, source: Any, close: Callable[[], object], lost: Callable[[Exception], RunnelError]) -> None:
        self._source = source
        self._close = close
        self._lost = lost
        self._reader = self._open()
        told = json.loads((self._reader.schema.metadata or {}).get(_ABOUT, b"{}"))
        self.schema: pa.Schema = self._reader.schema.remove_metadata()
        self.engine, self.at, self.reason = str(told.get("engine")), str(told.get("at")), told.get("reason")

    def read(self) -> "pa.RecordBatch | None":
        """Return the next batch, or None at the end."""
        try:
            batch, about = self._reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return None
        except Exception as error:  # of the connection, of HTTP, or of Arrow, which met half a batch
            raise self._lost(error) from error
        if about is not None and _WRONG in about:
            raise error_of(json.loads(about[_WRONG]))
        found: pa.RecordBatch = batch.replace_schema_metadata(None)
        return found

    def close(self) -> None:
        """Let go of the connection; may be called again."""
        self._close()

    def _open(self) -> Any:
        import pyarrow as pa

        try:
            return pa.ipc.open_stream(self._source)
        except Exception as error:
            self._close()
            raise self._lost(error) from error


def _first(batches: "Iterable[pa.RecordBatch]", limit: int | None) -> "Iterator[pa.RecordBatch]":
    """Yield batches up to so many rows."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(batch.num_rows, left)
        if not left:
            return


class _Sink(RawIOBase):
    """Takes what is written until somebody takes it away."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Tell that it is."""
        return True

    def tell(self) -> int:
        """Return how much was written."""
        return self._size

    def write(self, data: Any) -> int:
        """Keep some bytes."""
        found = bytes(data)
        self._parts.append(found)
        self._size += len(found)
        return len(found)

    def take(self) -> bytes:
        """Return what was written since it was last asked."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found
