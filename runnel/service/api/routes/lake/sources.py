"""Route for events that other programs push to sources."""

import time
from typing import TYPE_CHECKING

from anyio import Lock, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from runnel.errors import Conflict, Mistake, RunnelError, Unreachable, close_hint, find_nearest
from runnel.lake.control import declarations
from runnel.lake.control.declarations import SourceDeclaration
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, hash_texts
from runnel.names import TableName
from runnel.service.api.middleware.authentication import get_caller
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.parameters import SourcePath
from runnel.service.api.problem_json import error_responses
from runnel.service.api.push import event_parser
from runnel.service.api.push.event_writer import EventWriter

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

router = APIRouter(tags=["sources"])
_CACHE_SECONDS = 1.0
_SMALL_BYTES = 1 << 16  # smaller bodies are parsed without a thread
_KEY_BYTES = 800  # writing a key takes as long as writing so many bytes
_MAX_DRAINED_BYTES = 8 * event_parser.MAX_BYTES
_EVENT = {"type": "object", "additionalProperties": True}
_LINES = {"schema": {"type": "string"}, "example": '{"id": 1}\n{"id": 2}\n'}
_BODY = {
    "required": True,
    "description": f"One object, an array of them, or one in each line; {event_parser.MAX_EVENTS:,} events and "
    f"{event_parser.MAX_BYTES // 2**20} MiB at most. `Content-Encoding: gzip` is possible.",
    "content": {
        event_parser.JSON_MEDIA_TYPE: {
            "schema": {"anyOf": [_EVENT, {"type": "array", "items": _EVENT, "maxItems": event_parser.MAX_EVENTS}]},
            "example": [{"id": 1}, {"id": 2}],
        },
        event_parser.LINES_MEDIA_TYPES[0]: _LINES,
    },
}


class PushResultView(BaseModel):
    """The events of a request that are durable in the inbox; a run ingests them into the table."""

    source: str
    taken: int = Field(description="Events of this request that are now in the inbox")
    known: int = Field(description="Events whose key was already there; they were ignored")


class PushInboxes:
    """What the service needs to accept events: the declared sources, and the writer."""

    def __init__(self, db: "Database") -> None:
        self.writer = EventWriter(db)
        self._db = db
        self._cached_sources: dict[str, SourceDeclaration] = {}
        self._cached_at = 0.0
        self._refresh_lock = Lock()

    async def find_source(self, table: str) -> SourceDeclaration:
        """Return the source of a table; raise if events can't be pushed to it."""
        source = self._cached_sources.get(table) if time.monotonic() - self._cached_at < _CACHE_SECONDS else None
        if source is None:
            source = await self._refresh_and_find(table)
        if source.inbox is None:
            what = f"events can't be pushed to `{table}`: its source is {source.kind}"
            raise Conflict("SOURCE_NOT_PUSHED", what, fix=f'declare rn.source("{table}", rn.http(schema="..."))')
        return source

    async def _refresh_and_find(self, table: str) -> SourceDeclaration:
        async with self._refresh_lock:
            declared_sources = await to_thread.run_sync(lambda: self._db.read(declarations.read_sources))
            self._cached_sources, self._cached_at = declared_sources or {}, time.monotonic()
        if table in self._cached_sources:
            return self._cached_sources[table]
        name = str(TableName.parse(table))
        if declared_sources is None:
            what = "no worker has reported yet which sources the project declares"
            fix = "`runnel up` starts a worker; send the request again in a moment"
            raise Unreachable("SOURCES_UNDECLARED", what, fix=fix)
        suggestion = find_nearest(
            name, [source_name for source_name, source in self._cached_sources.items() if source.inbox]
        ) or find_nearest(name, self._cached_sources)
        what = f"there is no source `{name}`" + close_hint(suggestion)
        raise Mistake("SOURCE_UNKNOWN", what, fix=f'declare rn.source("{name}", rn.http(schema="..."))')


@router.post(
    "/sources/{table}/events",
    status_code=202,
    response_model=PushResultView,
    summary="Push events",
    responses=error_responses(400, 404, 409, 413, 415),
    openapi_extra={"requestBody": _BODY},
)
async def push_events(request: Request, table: SourcePath, key: IdempotencyKey = None) -> JSONResponse:
    """Accept events for a source, all or none; they are durable once this answers. A run ingests them."""
    inboxes: PushInboxes = request.app.state.inboxes
    source = await inboxes.find_source(table)
    assert source.inbox is not None
    media_type = _get_media_type(request)
    body = await _read_body(request)
    parsed = (
        event_parser.parse_events(body, media_type, source.key)
        if len(body) < _SMALL_BYTES
        else await _parse_in_thread(body, media_type, source)
    )
    request_key = (
        (hash_texts("request", get_caller(request).id, key), hash_texts(body.decode("latin-1"))) if key else None
    )
    size = len(body) + _KEY_BYTES * len(parsed.keys)
    receipt = await inboxes.writer.put(PushRequest(source.inbox, parsed.events, parsed.keys, request_key), size)
    return _build_response(table, receipt)


def _build_response(table: str, receipt: PushReceipt) -> JSONResponse:
    headers = {"Idempotency-Replayed": "true"} if receipt.is_repeated else None
    return JSONResponse({"source": table, "taken": receipt.accepted, "known": receipt.duplicates}, 202, headers)


async def _parse_in_thread(body: bytes, media_type: str, source: SourceDeclaration) -> event_parser.ParsedEvents:
    return await to_thread.run_sync(lambda: event_parser.parse_events(body, media_type, source.key))


def _get_media_type(request: Request) -> str:
    content_type = request.headers.get("content-type", event_parser.JSON_MEDIA_TYPE)
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in (event_parser.JSON_MEDIA_TYPE, *event_parser.LINES_MEDIA_TYPES):
        return media_type
    what = f"events are sent as {event_parser.JSON_MEDIA_TYPE} or {event_parser.LINES_MEDIA_TYPES[0]}"
    raise RunnelError("EVENTS_MEDIA_TYPE", what, fix=f"send the header Content-Type: {event_parser.JSON_MEDIA_TYPE}")


async def _read_body(request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise RunnelError(
            "EVENTS_MEDIA_TYPE", "events may be compressed only with gzip", fix="send Content-Encoding: gzip"
        )
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > _MAX_DRAINED_BYTES:
                break
            if size <= event_parser.MAX_BYTES:  # the rest is read and discarded, so that the sender gets the answer
                parts.append(chunk)
    except ClientDisconnect as error:
        raise Mistake("REQUEST_CUT", "the request is incomplete", fix="send it again") from error
    if size > event_parser.MAX_BYTES:
        raise event_parser.too_large_error()
    body = b"".join(parts)
    return await to_thread.run_sync(lambda: event_parser.decompress(body)) if encoding == "gzip" else body
