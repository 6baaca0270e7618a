"""`Idempotency-Key`: who repeats a POST with the same key gets the answer of the first one, and nothing is done twice.

Only what was answered for good is kept: after an error of the service the request may be repeated.
"""

import json
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from anyio import to_thread
from fastapi import Header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from runnel.errors import RunnelError
from runnel.lake.control import idempotency_keys
from runnel.lake.control.idempotency_keys import Answer, Taken
from runnel.query.arrow_stream import MEDIA_TYPE
from runnel.service.api.parameters import EVENTS, PREFIX
from runnel.service.api.problem_json import told

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from runnel.lake.catalog.database import Database

MOST_BYTES = 2 * 2**20  # of the body of a POST
_PATTERN = r"^[!-~]{1,200}$"
_VALID = re.compile(_PATTERN.encode())
_KEPT_HEADERS = ("content-type", "location")
_SWEEP_SECONDS = 600.0

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=_PATTERN,
        description="The same key with the same request gets the same answer, for a day; with another request 422.",
    ),
]


class Keys:
    """Answers a POST that was answered before, and keeps the answers of others."""

    def __init__(self, app: "ASGIApp", db: "Database") -> None:
        self._app = app
        self._db = db
        self._swept = time.monotonic()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http" or scope["method"] != "POST" or EVENTS.fullmatch(scope["path"]):
            # The inbox has keys of its own, written with the events.
            await self._app(scope, receive, send)
            return
        key = next((value for name, value in scope["headers"] if name == b"idempotency-key"), b"")
        if not _VALID.match(key) or _is_kept_by_nobody(scope):  # none, or one that the route refuses
            await self._app(scope, _bounded(receive), send)
            return
        try:
            await self._once(key.decode("ascii"), scope, receive, send)
        except RunnelError as error:
            await told(error)(scope, receive, send)
        except ClientDisconnect:
            return  # before all of the request came: nothing was begun

    async def _once(self, key: str, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            body = await _body(receive)
        except HTTPException:
            await told(RunnelError("REQUEST_TOO_LARGE", _too_large()), 413)(scope, receive, send)
            return
        whole = f"{scope['state']['caller'].name}\n{scope['path']}\n{scope['query_string'].decode('latin-1')}\n"
        request = whole + body.decode("latin-1")
        who = f"{scope['state']['caller'].name}\n{key}"
        found = await to_thread.run_sync(lambda: idempotency_keys.begin(self._db, who, request))
        if isinstance(found, Answer):
            await _again(found)(scope, receive, send)
            return
        scope["state"]["key"] = idempotency_keys.digest(f"{who}\n{request}")
        await self._answer(found, scope, _replayed(body, receive), send)

    async def _answer(self, taken: Taken, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Let the request be answered, and keep the answer before it is sent."""
        sent: list[Message] = []

        async def hold(message: "Message") -> None:
            sent.append(message)

        try:
            await self._app(scope, receive, hold)
        except BaseException:
            await to_thread.run_sync(lambda: self._drop(taken))
            raise
        await to_thread.run_sync(lambda: self._keep(taken, sent))
        for message in sent:
            await send(message)

    def _keep(self, taken: Taken, sent: "list[Message]") -> None:
        status = sent[0]["status"]
        if status >= 500:
            self._drop(taken)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        body = b"".join(message.get("body", b"") for message in sent[1:]).decode("utf-8")
        idempotency_keys.keep(self._db, taken, Answer(status, json.dumps({"headers": kept, "body": body})))
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._swept = time.monotonic()
            idempotency_keys.forget_old(self._db)

    def _drop(self, taken: Taken) -> None:
        with suppress(RunnelError):  # it ends by itself
            idempotency_keys.drop(self._db, taken)


def _is_kept_by_nobody(scope: "Scope") -> bool:
    """Tell whether an answer is not kept: one that has a secret, or a stream of any size that changes nothing."""
    if scope["path"] == f"{PREFIX}/tokens":  # the text of a token is kept nowhere
        return True
    is_query = scope["path"] == f"{PREFIX}/query"
    return is_query and any(name == b"accept" and MEDIA_TYPE.encode() in value for name, value in scope["headers"])


def _again(found: Answer) -> Response:
    kept = json.loads(found.body)
    return Response(kept["body"], found.status, headers={**kept["headers"], "Idempotency-Replayed": "true"})


def _bounded(receive: "Receive") -> "Receive":
    """Return a receive that refuses a body that is too large."""
    size = 0

    async def take() -> "Message":
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BYTES:
            raise HTTPException(413, _too_large())
        return message

    return take


async def _body(receive: "Receive") -> bytes:
    take, parts = _bounded(receive), list[bytes]()
    while True:
        message = await take()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: "Receive") -> "Receive":
    given = False

    async def take() -> "Message":
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return take


def _too_large() -> str:
    return f"the body of a request may have {MOST_BYTES // 2**20} MiB at most"
