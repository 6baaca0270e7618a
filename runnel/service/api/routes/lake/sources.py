"""Sources, and events that other programs push to them."""

import time
from typing import TYPE_CHECKING

from anyio import Lock, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from runnel.errors import Conflict, Mistake, RunnelError, Unreachable, nearest
from runnel.lake.control import declarations
from runnel.lake.control.declarations import Filled
from runnel.lake.flow_state.inbox_writer import Parcel, Receipt, digest
from runnel.names import TableName
from runnel.service.api.middleware.authentication import caller
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.parameters import SourcePath
from runnel.service.api.problem_json import problems
from runnel.service.api.push import event_parser
from runnel.service.api.push.event_writer import Writer

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

router = APIRouter(tags=["sources"])
_KNOWN_SECONDS = 1.0
_SMALL_BYTES = 1 << 16  # what is read at once, without a thread
_KEY_BYTES = 800  # a key costs as much time as so many bytes
_DRAINED_BYTES = 8 * event_parser.MOST_BYTES
_EVENT = {"type": "object", "additionalProperties": True}
_LINES = {"schema": {"type": "string"}, "example": '{"id": 1}\n{"id": 2}\n'}
_BODY = {
    "required": True,
    "description": f"One object, an array of them, or one in each line; {event_parser.MOST_EVENTS:,} events and "
    f"{event_parser.MOST_BYTES // 2**20} MiB at most. `Content-Encoding: gzip` is possible.",
    "content": {
        event_parser.JSON: {
            "schema": {"anyOf": [_EVENT, {"type": "array", "items": _EVENT, "maxItems": event_parser.MOST_EVENTS}]},
            "example": [{"id": 1}, {"id": 2}],
        },
        event_parser.LINES[0]: _LINES,
    },
}


class EventsTaken(BaseModel):
    """What was taken of a request, for good; a run takes it into the table."""

    source: str
    taken: int = Field(description="Events that are in the inbox now")
    known: int = Field(description="Events whose key was there already: they were not taken again")


class Inboxes:
    """What the service needs to take events: which sources there are, and who writes."""

    def __init__(self, db: "Database") -> None:
        self.writer = Writer(db)
        self._db = db
        self._known: dict[str, Filled] = {}
        self._known_at = 0.0
        self._looking = Lock()

    async def of(self, table: str) -> Filled:
        """Return the source of a table, to which events may be pushed; raise where they can't."""
        found = self._known.get(table) if time.monotonic() - self._known_at < _KNOWN_SECONDS else None
        if found is None:
            found = await self._look(table)
        if found.inbox is None:
            what = f"events can't be pushed to `{table}`: its source is {found.kind}"
            raise Conflict("SOURCE_NOT_PUSHED", what, fix=f'declare rn.source("{table}", rn.http(schema="..."))')
        return found

    async def _look(self, table: str) -> Filled:
        async with self._looking:
            known = await to_thread.run_sync(lambda: self._db.read(declarations.sources))
            self._known, self._known_at = known or {}, time.monotonic()
        if table in self._known:
            return self._known[table]
        name = str(TableName.parse(table))
        if known is None:
            what = "no worker has told yet which sources the project declares"
            raise Unreachable("SOURCES_UNDECLARED", what, fix="`runnel up` starts a worker; ask again in a moment")
        close = nearest(name, [one for one, found in self._known.items() if found.inbox]) or nearest(name, self._known)
        what = f"there is no source `{name}`" + (f"; close: `{close}`" if close else "")
        raise Mistake("SOURCE_UNKNOWN", what, fix=f'declare rn.source("{name}", rn.http(schema="..."))')


@router.post(
    "/sources/{table}/events",
    status_code=202,
    response_model=EventsTaken,
    summary="Push events",
    responses=problems(400, 404, 409, 413, 415),
    openapi_extra={"requestBody": _BODY},
)
async def push(request: Request, table: SourcePath, key: Key = None) -> JSONResponse:
    """Take events for a source, all or none; they are durable when this answers. A run takes them into the table."""
    inboxes: Inboxes = request.app.state.inboxes
    source = await inboxes.of(table)
    assert source.inbox is not None
    kind = _kind(request)
    body = await _body(request)
    found = event_parser.read(body, kind, source.key) if len(body) < _SMALL_BYTES else await _read(body, kind, source)
    whole = (digest("request", caller(request).name, key), digest(body.decode("latin-1"))) if key else None
    size = len(body) + _KEY_BYTES * len(found.keys)
    done = await inboxes.writer.put(Parcel(source.inbox, found.events, found.keys, whole), size)
    return _answer(table, done)


def _answer(table: str, done: Receipt) -> JSONResponse:
    headers = {"Idempotency-Replayed": "true"} if done.is_again else None
    return JSONResponse({"source": table, "taken": done.taken, "known": done.known}, 202, headers)


async def _read(body: bytes, kind: str, source: Filled) -> event_parser.Read:
    return await to_thread.run_sync(lambda: event_parser.read(body, kind, source.key))


def _kind(request: Request) -> str:
    given = request.headers.get("content-type", event_parser.JSON)
    kind = given.partition(";")[0].strip().lower()
    if kind in (event_parser.JSON, *event_parser.LINES):
        return kind
    what = f"events are sent as {event_parser.JSON} or {event_parser.LINES[0]}"
    raise RunnelError("EVENTS_MEDIA_TYPE", what, fix=f"send the header Content-Type: {event_parser.JSON}")


async def _body(request: Request) -> bytes:
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", ""):
        raise RunnelError("EVENTS_MEDIA_TYPE", "events may be packed by gzip only", fix="send Content-Encoding: gzip")
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > _DRAINED_BYTES:
                break
            if size <= event_parser.MOST_BYTES:  # the rest is let pass, so that its sender comes to hear the answer
                parts.append(chunk)
    except ClientDisconnect as error:
        raise Mistake("REQUEST_CUT", "the request ended in the middle", fix="send it again") from error
    if size > event_parser.MOST_BYTES:
        raise event_parser.too_large()
    body = b"".join(parts)
    return await to_thread.run_sync(lambda: event_parser.unpacked(body)) if packed == "gzip" else body
