"""Events pushed to real processes: what was answered survives kill -9, and lands in the table by itself, once."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake import failpoints
from runnel.lake.control import declarations, tokens
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.names import TableName
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from tests.service.running_service import Up, below, tail, until

EVENTS = TableName("ods", "events")
FLOW = """
import runnel as rn
rn.source("ods.events", rn.http(schema="id long"))
rn.source("ods.slow", rn.http(schema="id long"), poll="1 hour")
rn.schedule("slow", every="1 second", select="ods.slow")
"""
UNANSWERED = (OSError, HTTPException)  # what comes instead of an answer


class Shop:
    """A project whose processes are started and killed."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "up.txt"
        (root / "flows").mkdir()
        (root / "runnel.toml").write_text('[project]\nname = "shop"\n')
        (root / "flows/flow.py").write_text(FLOW)
        self.lake: Lake = rn.open(root)
        self.secret = tokens.create(self.lake.store.db, "bob", "write")
        self.up: Up | None = None
        self.url = ""

    def start(self, command: str, fail: str | None = None) -> None:
        self.end()
        self.up = Up(self.root, self.log, fail, command=command)
        self.url = f"http://127.0.0.1:{self.up.port}"
        until(self.is_ready, 60, lambda: tail(self.log), 0.02)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except UNANSWERED:
            return False

    def push(self, *ids: int, key: str | None = None, source: str = "ods.events") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"}
        headers |= {"Idempotency-Key": key} if key else {}
        body = json.dumps([{"id": number} for number in ids]).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/sources/{source}/events", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202
            return dict(json.load(answer))

    def inbox(self) -> list[int]:
        inbox = InboxReader(self.lake.store.db)
        lots = inbox.read_batches(EVENTS, 0, inbox.read_level(EVENTS).last)
        return [json.loads(line)["id"] for lot in lots for line in lot.body.splitlines()]

    def ids(self, table: str = "ods.events") -> list[int]:
        if table not in self.lake.tables():
            return []
        return sorted(row[0] for row in self.lake.query(f"select id from {table}", engine="duckdb").rows())

    def has(self, ids: list[int], table: str = "ods.events") -> None:
        until(lambda: self.ids(table) == ids, 60, lambda: f"{table} has {self.ids(table)}\n{tail(self.log)}", 0.05)

    def kill_service(self) -> None:
        assert self.up is not None
        words = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid, _ in below(self.up.process.pid)}
        os.kill(next(pid for pid, text in words.items() if "service\0--watched" in text), signal.SIGKILL)

    def end(self) -> None:
        if self.up is not None:
            self.up.__exit__()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.end()
    shop.lake.close()


@pytest.mark.crash
def test_what_was_answered_lands_by_itself_whoever_is_killed(shop: Shop) -> None:
    shop.start("up")
    until(lambda: _is_declared(shop), 60, lambda: tail(shop.log))
    assert shop.push(1, 2)["taken"] == 2
    shop.kill_service()
    shop.has([1, 2])
    until(shop.is_ready, 60, lambda: tail(shop.log), 0.05)
    assert shop.push(3)["taken"] == 1 and shop.push(7, source="ods.slow")["taken"] == 1
    shop.has([1, 2, 3])
    shop.has([7], "ods.slow")  # by its schedule


@pytest.mark.crash
@pytest.mark.parametrize("point", [failpoints.INBOX_BEFORE_COMMIT, failpoints.INBOX_AFTER_COMMIT])
def test_a_request_whose_answer_was_lost_is_repeated_with_its_key(shop: Shop, point: str) -> None:
    declarations.write_declarations(shop.lake.store.db, collect_declarations(load_project_flow(shop.lake)))
    shop.start("service", f"{point}:kill@2")
    shop.push(1)
    with pytest.raises(UNANSWERED):
        shop.push(2, 3, key="once")
    assert shop.inbox() == ([1] if point == failpoints.INBOX_BEFORE_COMMIT else [1, 2, 3])
    shop.start("service")
    assert shop.push(2, 3, key="once")["taken"] == 2
    assert shop.inbox() == [1, 2, 3]


@pytest.mark.crash
def test_a_kill_while_many_push_loses_nothing_that_was_answered(shop: Shop) -> None:
    declarations.write_declarations(shop.lake.store.db, collect_declarations(load_project_flow(shop.lake)))
    shop.start("service", f"{failpoints.INBOX_AFTER_COMMIT}:kill@10")

    def client(number: int) -> list[int]:
        """Push until nobody answers, and return what was answered."""
        answered: list[int] = []
        try:
            for count in range(1000):
                shop.push(number * 1000 + count)
                answered.append(number * 1000 + count)
        except UNANSWERED:
            pass
        return answered

    with ThreadPoolExecutor(8) as pool:
        answered = [number for found in pool.map(client, range(8)) for number in found]
    there = shop.inbox()
    assert answered and set(answered) <= set(there) and len(there) == len(set(there))


def _is_declared(shop: Shop) -> bool:
    return bool(shop.lake.store.db.read(declarations.read_sources))
