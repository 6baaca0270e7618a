"""Stream an answer, or a range of it, while it is read from the lake, and release what it reads, however it ends."""

import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import CancelScope, move_on_after, to_thread
from starlette.responses import StreamingResponse

from runnel.errors import RunnelError
from runnel.query.arrow_stream import IncompleteAnswer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

LOG = logging.getLogger("runnel.api")
_SEND_TIMEOUT_SECONDS = 300.0
_RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})")


@dataclass(frozen=True)
class DownloadRange:
    """The bytes of a file from `start` up to `end`, of a file with `size` bytes, that a client requests."""

    start: int
    end: int
    size: int

    @classmethod
    def parse(cls, header: str | None, size: int) -> "DownloadRange | None":
        """Return the range of a header; None for the whole file, also if the header has several ranges.

        >>> DownloadRange.parse("bytes=2-", 10), DownloadRange.parse("bytes=1-2,4-5", 10)
        (DownloadRange(start=2, end=10, size=10), None)
        """
        match = _RANGE.fullmatch(header or "")
        if match is None or match["first"] == match["last"] == "":
            return None
        if not match["first"]:
            return cls(max(0, size - int(match["last"])), size, size)
        start, end = int(match["first"]), min(int(match["last"] or size) + 1, size)
        return cls(start, end, size) if start < end or start >= size else None

    @property
    def is_satisfiable(self) -> bool:
        """Tell whether the file has any of these bytes."""
        return self.start < self.end

    def select(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the requested bytes of the file's chunks; up to the end of the file, the file is read to its end."""
        position = 0
        for chunk in chunks:
            if selected := chunk[max(0, self.start - position) : self.end - position]:
                yield selected
            position += len(chunk)
            if position >= self.end < self.size:
                return


class StreamedResponse(StreamingResponse):
    """A stream that is cut off if an error occurs in the middle, so that no client takes it for complete.

    `close` is called once, also if the client has gone.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        close: Callable[[], object],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        status_code: int = 200,
    ) -> None:
        self._is_complete = False
        self._close = close
        self._chunks = self._read_chunks(chunks)
        super().__init__(self._chunks, status_code, headers, media_type)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):  # also if the client has disconnected, maybe before the first chunk
                await to_thread.run_sync(self._close)

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

    async def _read_chunks(self, chunks: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
                yield chunk
            self._is_complete = True
        except (IncompleteAnswer, RunnelError, OSError) as error:
            LOG.warning("an answer was cut off: %s", error.__cause__ or error)
