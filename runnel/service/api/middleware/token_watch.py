"""Serve a request that may last long only as long as its token is valid. Knows no token, and no route."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.responses import Response

from runnel.service.api.sse import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHECK_SECONDS = 2.0
FindRefusal = Callable[[], Awaitable[Response | None]]


async def serve_while_valid(
    app: "ASGIApp", find_refusal: FindRefusal, scope: "Scope", receive: "Receive", send: "Send"
) -> None:
    """Serve a request; every two seconds, end it if `find_refusal` returns an answer.

    That is the answer of a request that has none yet. An event stream ends as if it were complete, so that its client
    asks again and is refused; any other answer breaks off, so that nobody takes it for complete.
    """
    started: list[Message] = []

    async def send_noted(message: "Message") -> None:
        if message["type"] == "http.response.start":
            started.append(message)
        await send(message)

    serving = asyncio.ensure_future(app(scope, receive, send_noted))
    try:
        while not (await asyncio.wait({serving}, timeout=CHECK_SECONDS))[0]:
            refusal = await find_refusal()
            if refusal is not None and not serving.done():
                await _cancel(serving)
                await _end_answer(started, refusal, scope, receive, send)
                return
        await serving
    finally:
        if not serving.done():  # the service ends
            await _cancel(serving)


async def _cancel(serving: "asyncio.Future[None]") -> None:
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


async def _end_answer(
    started: "list[Message]", refusal: Response, scope: "Scope", receive: "Receive", send: "Send"
) -> None:
    if not started:
        await refusal(scope, receive, send)
        return
    headers = dict(started[0]["headers"])
    if headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode()):
        await send({"type": "http.response.body", "body": b"", "more_body": False})
