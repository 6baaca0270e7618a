"""A request that takes longer than the timeout of its claim is done once, however often it is repeated meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.lake.control import idempotency_keys
from runnel.lake.store import Store
from runnel.service.api.middleware.idempotency import IdempotencyMiddleware


async def _post(middleware: IdempotencyMiddleware) -> int:
    """Send a POST with a key through the middleware, and return the status of its answer."""
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/api/v1/merge", "query_string": b""}
    scope |= {"headers": [(b"idempotency-key", b"k")], "state": {"caller": SimpleNamespace(id="a1")}}
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await middleware(scope, receive, send)
    return statuses[0]


def test_a_slow_request_is_done_once(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_keys, "CLAIM_TIMEOUT_SECONDS", 1.0)
    calls: list[str] = []

    async def work_slowly(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope["path"])
        await asyncio.sleep(3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send_repeatedly() -> list[int]:
        middleware = IdempotencyMiddleware(work_slowly, both.db)
        first = asyncio.create_task(_post(middleware))
        await asyncio.sleep(2)  # longer than the timeout, and the first request is still under way
        repeated = await _post(middleware)
        return [await first, repeated, await _post(middleware)]

    assert asyncio.run(send_repeatedly()) == [200, 409, 200]
    assert len(calls) == 1
