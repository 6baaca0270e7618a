"""Send and receive query results as an Arrow stream, which preserves types exactly.

The schema's metadata name the engine and the commit. An error in the middle is sent in the metadata of a last, empty
batch; the stream is not terminated after it, so that no client takes it for a complete result.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from io import RawIOBase
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError, error_from_json

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.query.result import QueryResult

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
_ABOUT_KEY, _ERROR_KEY = b"runnel", b"runnel.error"


class IncompleteAnswer(Exception):
    """The result ended early because of an error, which was sent in the stream."""


def encode_result(result: "QueryResult", limit: int | None = None) -> Iterator[bytes]:
    """Yield a result as the bytes of an Arrow stream; after sending an error, raise IncompleteAnswer."""
    import pyarrow as pa

    about = {"engine": result.engine, "at": result.at, "reason": result.reason}
    schema, sink = result.schema.with_metadata({_ABOUT_KEY: json.dumps(about).encode()}), _StreamBuffer()
    writer = pa.ipc.new_stream(sink, schema)
    yield sink.drain()
    try:
        for batch in _limit_rows(result.batches(), limit):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            yield sink.drain()
    except RunnelError as error:
        error_metadata = {_ERROR_KEY: json.dumps(error.to_json_with_kind()).encode()}
        writer.write_batch(pa.RecordBatch.from_pylist([], schema), custom_metadata=error_metadata)
        yield sink.drain()
        raise IncompleteAnswer from error
    writer.close()
    yield sink.drain()


class ReceivedStream:
    """The rows of a result received as an Arrow stream; `describe_loss` converts connection errors."""

    def __init__(
        self, source: Any, close: Callable[[], object], describe_loss: Callable[[Exception], RunnelError]
    ) -> None:
        self._source = source
        self._close = close
        self._describe_loss = describe_loss
        self._reader = self._open()
        about = json.loads((self._reader.schema.metadata or {}).get(_ABOUT_KEY, b"{}"))
        self.schema: pa.Schema = self._reader.schema.remove_metadata()
        self.engine, self.at, self.reason = str(about.get("engine")), str(about.get("at")), about.get("reason")

    def read(self) -> "pa.RecordBatch | None":
        """Return the next batch, or None at the end."""
        try:
            batch, about = self._reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return None
        except Exception as error:  # of the connection, of HTTP, or of Arrow, which got an incomplete batch
            raise self._describe_loss(error) from error
        if about is not None and _ERROR_KEY in about:
            raise error_from_json(json.loads(about[_ERROR_KEY]))
        bare_batch: pa.RecordBatch = batch.replace_schema_metadata(None)
        return bare_batch

    def close(self) -> None:
        """Close the connection; may be called again."""
        self._close()

    def _open(self) -> Any:
        import pyarrow as pa

        try:
            return pa.ipc.open_stream(self._source)
        except Exception as error:
            self._close()
            raise self._describe_loss(error) from error


def _limit_rows(batches: "Iterable[pa.RecordBatch]", limit: int | None) -> "Iterator[pa.RecordBatch]":
    """Yield batches up to so many rows."""
    remaining = limit
    for batch in batches:
        if remaining is None:
            yield batch
            continue
        yield batch.slice(0, remaining)
        remaining -= min(batch.num_rows, remaining)
        if not remaining:
            return


class _StreamBuffer(RawIOBase):
    """Buffers written bytes until they are drained."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True: the buffer is writable."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._size

    def write(self, data: Any) -> int:
        """Append bytes to the buffer."""
        chunk = bytes(data)
        self._parts.append(chunk)
        self._size += len(chunk)
        return len(chunk)

    def drain(self) -> bytes:
        """Return and remove the bytes written since the last call."""
        chunk = b"".join(self._parts)
        self._parts.clear()
        return chunk
