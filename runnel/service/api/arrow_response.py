"""Send answers as an Arrow stream, batch by batch: neither side ever holds all rows in memory."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from anyio import CancelScope, move_on_after, to_thread
from fastapi import Request
from starlette.responses import StreamingResponse

from runnel.query.arrow_stream import MEDIA_TYPE, IncompleteAnswer, encode_result

if TYPE_CHECKING:
    from starlette.types import Send

    from runnel.lake.store import Store
    from runnel.query.result import QueryResult

LOG = logging.getLogger("runnel.api")
_CHUNK_BYTES = 2**20
_SEND_TIMEOUT_SECONDS = 300.0


class ArrowResponse(StreamingResponse):
    """A stream that is cut off if an error occurs in the middle, so that no client takes it for complete."""

    def __init__(self, chunks: Iterator[bytes], close: Callable[[], object]) -> None:
        self._is_complete = False
        self._chunks = self._read_chunks(chunks, close)
        super().__init__(self._chunks, media_type=MEDIA_TYPE)

    async def stream_response(self, send: "Send") -> None:
        """Send all chunks, and the end marker only if the stream is complete."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                with move_on_after(_SEND_TIMEOUT_SECONDS) as timeout_scope:  # a client that stopped reading
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if timeout_scope.cancelled_caught:
                    return
        if self._is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read_chunks(self, chunks: Iterator[bytes], close: Callable[[], object]) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
                yield chunk
            self._is_complete = True
        except IncompleteAnswer as cut:
            LOG.warning("an answer was cut off: %s", cut.__cause__)
        finally:
            with CancelScope(shield=True):  # also if the client has disconnected
                await to_thread.run_sync(close)


def accepts_arrow(request: Request) -> bool:
    """Return whether the client accepts an Arrow stream."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def from_result(result: "QueryResult", limit: int | None) -> ArrowResponse:
    """Return a response that is computed while it is sent."""
    return ArrowResponse(encode_result(result, limit), result.close)


def from_file(store: "Store", location: str) -> ArrowResponse:
    """Return a response from a file that a worker has written; the file is deleted afterwards."""
    stream = store.io.new_input(location).open()

    def read_chunks() -> Iterator[bytes]:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk

    def close() -> None:
        with suppress(OSError):  # `gc` removes it later
            stream.close()
            store.io.delete(location)

    return ArrowResponse(read_chunks(), close)
