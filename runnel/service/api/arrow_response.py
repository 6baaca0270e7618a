"""Send answers as an Arrow stream, batch by batch: neither side ever holds all rows in memory."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from fastapi import Request

from runnel.query.arrow_stream import MEDIA_TYPE, encode_result
from runnel.service.api.streamed_response import StreamedResponse

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.query.result import QueryResult

_CHUNK_BYTES = 2**20


def accepts_arrow(request: Request) -> bool:
    """Return whether the client accepts an Arrow stream."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def from_result(result: "QueryResult", limit: int | None) -> StreamedResponse:
    """Return a response that is computed while it is sent."""
    return StreamedResponse(encode_result(result, limit), result.close, media_type=MEDIA_TYPE)


def from_file(store: "Store", location: str) -> StreamedResponse:
    """Return a response from a file that a worker has written; the file is deleted afterwards."""
    stream = store.io.new_input(location).open()

    def read_chunks() -> Iterator[bytes]:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk

    def close() -> None:
        with suppress(OSError):  # `gc` removes it later
            stream.close()
            store.io.delete(location)

    return StreamedResponse(read_chunks(), close, media_type=MEDIA_TYPE)
