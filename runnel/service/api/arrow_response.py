"""Answers as an Arrow stream, sent batch by batch: neither side ever holds all rows."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from anyio import CancelScope, move_on_after, to_thread
from fastapi import Request
from starlette.responses import StreamingResponse

from runnel.query.arrow_stream import MEDIA_TYPE, Cut, sent

if TYPE_CHECKING:
    from starlette.types import Send

    from runnel.lake.store import Store
    from runnel.query.result import Result

LOG = logging.getLogger("runnel.api")
_CHUNK_BYTES = 2**20
_PATIENCE_SECONDS = 300.0


class ArrowResponse(StreamingResponse):
    """A stream that is cut off where something goes wrong in the middle, so that nobody takes it for the whole."""

    def __init__(self, parts: Iterator[bytes], close: Callable[[], object]) -> None:
        self._is_whole = False
        self._parts = self._sent(parts, close)
        super().__init__(self._parts, media_type=MEDIA_TYPE)

    async def stream_response(self, send: "Send") -> None:
        """Send all parts, and the end only where there is nothing more."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._parts) as parts:
            async for part in parts:
                with move_on_after(_PATIENCE_SECONDS) as waiting:  # who does not read must not keep the query for ever
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                if waiting.cancelled_caught:
                    return
        if self._is_whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _sent(self, parts: Iterator[bytes], close: Callable[[], object]) -> AsyncGenerator[bytes, None]:
        try:
            while (part := await to_thread.run_sync(next, parts, None)) is not None:
                yield part
            self._is_whole = True
        except Cut as cut:
            LOG.warning("an answer was cut off: %s", cut.__cause__)
        finally:
            with CancelScope(shield=True):  # also where whoever asked has gone away
                await to_thread.run_sync(close)


def is_wanted(request: Request) -> bool:
    """Tell whether whoever asks takes Arrow."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def of_result(result: "Result", limit: int | None) -> ArrowResponse:
    """Return an answer that is computed as it is sent."""
    return ArrowResponse(sent(result, limit), result.close)


def of_file(store: "Store", location: str) -> ArrowResponse:
    """Return an answer that a worker has written, which is removed when it is sent."""
    stream = store.io.new_input(location).open()

    def parts() -> Iterator[bytes]:
        while part := stream.read(_CHUNK_BYTES):
            yield part

    def close() -> None:
        with suppress(OSError):  # what can't be removed now is swept later
            stream.close()
            store.io.delete(location)

    return ArrowResponse(parts(), close)
