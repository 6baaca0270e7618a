"""A real server over a real lake: uvicorn in a thread, asked over HTTP."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import uvicorn
from fastapi import FastAPI

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.control import tokens
from runnel.service.api.app import make_app
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import Worker

API = "/api/v1"
FLOW = """
import runnel as rn
rn.source("ods.orders", rn.manual(schema="id long, day date, amount decimal(12,2)"))
rn.source("ods.more", rn.files("*.txt", format="csv", schema="id long"))
"""
ORDERS = "id,day,amount\n1,2026-01-01,20.00\n2,2026-01-01,35.50\n3,2026-01-02,12.25\n"


@dataclass
class Api:
    """The API of a lake, asked with a token."""

    lake: Lake
    url: str
    secret: str
    app: FastAPI
    session: requests.Session = field(default_factory=requests.Session)

    def ask(self, method: str, path: str, *, secret: str | None = None, **options: Any) -> requests.Response:
        """Ask, and make sure that an error is told as all errors are."""
        headers = {"Authorization": f"Bearer {secret or self.secret}", **options.pop("headers", {})}
        where = path if path.startswith(("/health", "/ready", "/openapi", "/nothing")) else API + path
        found = self.session.request(method, self.url + where, headers=headers, timeout=60, **options)
        if found.status_code >= 400:
            assert found.headers["content-type"] == "application/problem+json", found.text
            assert {"type", "title", "status", "detail", "code", "what", "at", "fix"} <= set(found.json())
            assert found.json()["status"] == found.status_code
        return found

    def get(self, path: str, expected: int = 200, **params: Any) -> Any:
        """Return what a GET answers."""
        found = self.ask("GET", path, params=params)
        assert found.status_code == expected, found.text
        return found.json()

    def post(self, path: str, body: Any = None, expected: int = 200, key: str | None = None) -> Any:
        """Return what a POST answers."""
        found = self.ask("POST", path, json=body, headers={"Idempotency-Key": key} if key else {})
        assert found.status_code == expected, found.text
        return found.json()


@contextmanager
def serving(lake: Lake, *, port: int = 0, name: str = "ada") -> Iterator[Api]:
    """Serve a lake, on a free port by default, until the block ends; the token is of this name."""
    app = make_app(lake)
    secret = tokens.create(lake.store.db, name, "admin")
    with socket.socket(proto=socket.IPPROTO_TCP) as found:  # else asyncio lets each answer wait for 40 ms
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        port = found.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        api = Api(lake, f"http://127.0.0.1:{port}", secret, app)
        try:
            yield api
        finally:
            api.session.close()
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def working(api: Api) -> Iterator[Worker]:
    """Give a lake a project with sources, and a worker, until the block ends."""
    root = api.lake.settings.root
    (root / "flows").mkdir(exist_ok=True)
    (root / "flows/flow.py").write_text(FLOW)
    (root / "a.txt").write_text("id\n1\n")
    worker = Worker(api.lake, FlowCache(api.lake, os.environ), parallel=1)
    worker.start()
    try:
        yield worker
    finally:
        worker.end()


def shop(folder: Path) -> Lake:
    """Return the lake of a shop: orders, a branch `dev` with one order more, a tag `v1`, and files."""
    (folder / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (folder / "orders.csv").write_text(ORDERS)
    (folder / "more.csv").write_text("id,day,amount\n4,2026-01-03,1.00\n")
    lake = rn.open(folder)
    lake.load("ods.orders", folder / "orders.csv", key="id")
    lake.tag("v1")
    lake.branch("dev")
    lake.load("ods.orders", folder / "more.csv", branch="dev")
    lake.put("raw.docs", folder / "orders.csv", folder / "more.csv", prefix="in")
    return lake
