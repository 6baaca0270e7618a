"""The life of tables that follow from a log of changes, whatever the log comes from."""

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.changes import failpoints as of_changes
from runnel.connect.feed import failpoints as of_feeds
from runnel.connect.ingest import failpoints as of_files
from tests.connect.lifecycle.source_lifecycle import STEPS, Kind, Life, Row
from tests.run.project import Project
from tests.servers.http_server import Server as Api
from tests.servers.kafka import Server as Kafka

SCHEMA = 'schema="id long, ts long, op string, name string"'
HOW = 'key="id", sequence_by="ts", delete_when="op = \'D\'"'
POINTS = {of_files.READ: 1, of_files.STAGED: 1, **dict.fromkeys(of_feeds.ALL, 1)}
POINTS |= {of_changes.APPLIED: 2, of_changes.STAGED: 2}
Change = dict[str, Any]


class Logged(Kind):
    """A table that follows from a log: `write` adds to it."""

    follows = True

    def __init__(self, name: str, scd: int, origin: str, write: Callable[[Change], None]) -> None:
        super().__init__(name)
        self.scd, self.origin, self.write = scd, origin, write
        self.columns = "id, name" if scd == 1 else "id, name, valid_from, valid_to"
        self.log: list[Change] = []

    @property
    def quarantine(self) -> str:
        return f"quarantine.ods_{self.name}__changes"

    def declare(self) -> str:
        changes = f"rn.changes({self.origin}, {HOW}, scd={self.scd})"
        return f'rn.source("{self.table}", {changes}, on_bad="quarantine")'

    def put(self, number: int | None, name: str, op: str = "I") -> None:
        """Add a change, and an earlier one that comes late."""
        for late, said in enumerate((name, "late")):
            at = 1001 + len(self.log) - 2 * late
            self.log.append({"id": number, "ts": at, "op": op, "name": said})
            self.write(self.log[-1])

    def change(self, number: int, name: str) -> None:
        """Change a row, and delete the next."""
        self.put(number, name, "U")
        self.put(number + 1, name, "D")

    def spoil(self, number: int, name: str) -> int:
        """Have a change that does not say of what."""
        self.put(number, name)
        self.put(None, name)
        return 2

    def rows(self) -> Iterator[Row]:
        good = sorted((one for one in self.log if one["id"] is not None), key=lambda one: (one["id"], one["ts"]))
        for number, found in groupby(good, key=lambda one: one["id"]):
            versions = list(found)
            for one, after in zip(versions, [*versions[1:], None], strict=True):
                if one["op"] == "D" or (self.scd == 1 and after is not None):
                    continue
                until = after["ts"] if after is not None else None
                yield (number, one["name"]) if self.scd == 1 else (number, one["name"], one["ts"], until)


def _in_files(name: str, scd: int, root: Path) -> Kind:
    folder = root / name
    folder.mkdir()

    def write(change: Change) -> None:
        (folder / f"{change['ts']}.jsonl").write_text(json.dumps(change) + "\n")

    return Logged(name, scd, f'rn.files("{name}/*.jsonl", {SCHEMA})', write)


def _in_a_database(root: Path, until: ExitStack) -> Kind:
    connection = until.enter_context(closing(sqlite3.connect(root / "shop.db", isolation_level=None)))
    connection.execute("CREATE TABLE log (id integer, ts integer, op text, name text)")

    def write(change: Change) -> None:
        connection.execute("INSERT INTO log VALUES (?, ?, ?, ?)", tuple(change.values()))

    return Logged("jdbc", 1, f'rn.jdbc("sqlite:///shop.db", table="log", watermark="ts", {SCHEMA})', write)


def _in_a_topic(server: Kafka) -> Kind:
    topic = server.topic(f"life-{uuid.uuid4().hex[:8]}")
    origin = f'rn.kafka("{topic}", servers="{server.servers}", {SCHEMA})'
    return Logged("kafka", 2, origin, lambda change: server.put(topic, change))


def _in_an_api(server: Api) -> Kind:
    server.since_field = "ts"
    return Logged("http", 2, f'rn.http("{server.url("/all")}", {SCHEMA}, since="ts")', server.records.append)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Life]:
    root = tmp_path_factory.mktemp("life")
    with ExitStack() as until:
        feeds = [_in_a_database(root, until), _in_a_topic(kafka), _in_an_api(until.enter_context(Api()))]
        circles = [[_in_files("scd1", 1, root), _in_files("scd2", 2, root)], feeds]
        yield Life(Project(root), circles, POINTS).live()


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["scd1", "scd2", "jdbc", "kafka", "http"])
def test_life(life: Life, kind: str, step: str) -> None:
    life.check(kind, step)
