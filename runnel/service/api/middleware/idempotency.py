"""`Idempotency-Key`: a POST repeated with the same key gets the answer of the first one, and nothing is done twice.

The same holds for the DELETE that removes files: repeated without a key, it would find none.

Only final answers are stored: after an error of the service (5xx) the request may be repeated. Of an answer that is
too large, only the key is stored: a repeated request is refused, and nothing is done twice. A request that only reads
is simply answered again.
"""

import asyncio
import json
import logging
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from runnel.errors import Conflict, RunnelError
from runnel.lake.control import idempotency_keys
from runnel.lake.control.idempotency_keys import ClaimedKey, StoredResponse
from runnel.service.api.parameters import API_PREFIX, EVENTS_PATH
from runnel.service.api.problem_json import to_problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from runnel.lake.catalog.database import Database

LOG = logging.getLogger("runnel.api")
MAX_BODY_BYTES = 2 * 2**20  # of the body of a POST
MAX_FILE_BYTES = 64 * 2**20  # of a corrected file
MAX_STORED_BYTES = 256 * 2**10  # of an answer
_KEY_REGEX = r"^[!-~]{1,200}$"
_KEY_PATTERN = re.compile(_KEY_REGEX.encode())
_STORED_HEADERS = ("content-type", "location")
_SWEEP_SECONDS = 600.0
_READING_PATHS = frozenset({f"{API_PREFIX}/query", f"{API_PREFIX}/plan"})  # of a POST that changes nothing
_FILE_PATHS = re.compile(rf"{API_PREFIX}/quarantine/[^/]+/release")
_COMMITTING_DELETES = re.compile(rf"{API_PREFIX}/(?:files|quarantine)/[^/]+")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=_KEY_REGEX,
        description="The same key with the same request gets the same answer, for a day; with another request 422.",
    ),
]


class IdempotencyMiddleware:
    """Replays the stored answer of a repeated POST or DELETE, and stores the answers of new ones."""

    def __init__(self, app: "ASGIApp", db: "Database") -> None:
        self._app = app
        self._db = db
        self._swept_at = time.monotonic()
        self._renewal_threads = CapacityLimiter(1)  # its own, since slow requests may occupy all the others

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http" or not _takes_key(scope) or EVENTS_PATH.fullmatch(scope["path"]):
            # The inbox stores its own keys, together with the events.
            await self._app(scope, receive, send)
            return
        key = next((value for name, value in scope["headers"] if name == b"idempotency-key"), b"")
        if not _KEY_PATTERN.match(key) or _is_never_stored(scope):  # no key, or one that the route refuses
            await self._app(scope, _limit_body(receive, _max_body_bytes(scope)), send)
            return
        try:
            await self._answer_once(key.decode("ascii"), scope, receive, send)
        except RunnelError as error:
            await to_problem_response(error)(scope, receive, send)
        except ClientDisconnect:
            return  # before the whole request arrived: nothing was started

    async def _answer_once(self, key: str, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            body = await _read_body(receive, _max_body_bytes(scope))
        except HTTPException as error:
            await to_problem_response(RunnelError("REQUEST_TOO_LARGE", error.detail), 413)(scope, receive, send)
            return
        method = "" if scope["method"] == "POST" else f"{scope['method']}\n"  # stored keys of a POST have no method
        # The id, not the name: a later token of the same name must not get the answers of this one.
        caller_id = scope["state"]["caller"].id
        request_head = f"{caller_id}\n{scope['path']}\n{scope['query_string'].decode('latin-1')}\n"
        request = method + request_head + body.decode("latin-1")
        owned_key = f"{caller_id}\n{key}"
        claim = await to_thread.run_sync(lambda: idempotency_keys.claim_key(self._db, owned_key, request))
        if isinstance(claim, StoredResponse):
            await _replay_answer(claim)(scope, receive, send)
            return
        scope["state"]["key"] = idempotency_keys.hash_text(f"{owned_key}\n{request}")
        await self._answer_and_store(claim, scope, _replay_body(body, receive), send)

    async def _answer_and_store(self, claim: ClaimedKey, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Let the app answer the request, and store the answer before it is sent."""
        messages: list[Message] = []

        async def collect_message(message: "Message") -> None:
            messages.append(message)

        renewal = asyncio.create_task(self._renew_claim(claim))
        try:
            await self._app(scope, receive, collect_message)
        except BaseException:
            await to_thread.run_sync(lambda: self._drop_claim(claim))
            raise
        finally:
            renewal.cancel()
        await to_thread.run_sync(lambda: self._store_answer(claim, messages))
        for message in messages:
            await send(message)

    async def _renew_claim(self, claim: ClaimedKey) -> None:
        """Renew a claim until cancelled: a request that takes longer than the timeout must not be done twice."""
        while True:
            await asyncio.sleep(idempotency_keys.CLAIM_TIMEOUT_SECONDS / 4)
            try:
                await to_thread.run_sync(
                    lambda: idempotency_keys.renew_claim(self._db, claim), limiter=self._renewal_threads
                )
            except Exception:  # the database may be away for a while
                LOG.exception("renewing the claim of an idempotency key failed")

    def _store_answer(self, claim: ClaimedKey, messages: "list[Message]") -> None:
        status = messages[0]["status"]
        if status >= 500:
            self._drop_claim(claim)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in messages[0]["headers"]}
        stored_headers = {name: headers[name] for name in _STORED_HEADERS if name in headers}
        body = b"".join(message.get("body", b"") for message in messages[1:])
        is_small = len(body) <= MAX_STORED_BYTES
        text = json.dumps({"headers": stored_headers, "body": body.decode("utf-8")}) if is_small else ""
        idempotency_keys.store_response(self._db, claim, StoredResponse(status, text))
        if time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            idempotency_keys.delete_expired(self._db)

    def _drop_claim(self, claim: ClaimedKey) -> None:
        with suppress(RunnelError):  # the claim expires by itself
            idempotency_keys.release_key(self._db, claim)


def _takes_key(scope: "Scope") -> bool:
    if scope["method"] == "DELETE":
        return _COMMITTING_DELETES.fullmatch(scope["path"]) is not None
    return bool(scope["method"] == "POST")


def _is_never_stored(scope: "Scope") -> bool:
    """Return whether the answer is not stored: it holds the text of a token, or the request only reads."""
    path: str = scope["path"]
    return path.startswith(f"{API_PREFIX}/tokens") or path in _READING_PATHS


def _replay_answer(answer: StoredResponse) -> Response:
    if not answer.body:
        what = "this request was executed before; its answer was too large to be stored, or was removed by an erasure"
        fix = "look at what it did; send it with a new key to execute it once more"
        return to_problem_response(Conflict("ANSWER_NOT_STORED", what, fix=fix))
    stored = json.loads(answer.body)
    return Response(stored["body"], answer.status, headers={**stored["headers"], "Idempotency-Replayed": "true"})


def _max_body_bytes(scope: "Scope") -> int:
    return MAX_FILE_BYTES if _FILE_PATHS.fullmatch(scope["path"]) else MAX_BODY_BYTES


def _limit_body(receive: "Receive", max_bytes: int) -> "Receive":
    """Return a receive that refuses a body that is too large."""
    size = 0

    async def receive_limited() -> "Message":
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise HTTPException(413, f"the body of a request may have {max_bytes // 2**20} MiB at most")
        return message

    return receive_limited


async def _read_body(receive: "Receive", max_bytes: int) -> bytes:
    receive_limited, parts = _limit_body(receive, max_bytes), list[bytes]()
    while True:
        message = await receive_limited()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay_body(body: bytes, receive: "Receive") -> "Receive":
    is_replayed = False

    async def receive_replayed() -> "Message":
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replayed
