"""A topic of Kafka and a project that reads it, so that a test states only what matters."""

import json
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.kafka.feed import KafkaFeed
from runnel.declare.api.kafka import kafka
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.errors import RunnelError
from runnel.model.progress import Progress
from runnel.names import TableName
from tests.connect.feed_places import fetch_in_units, use_units
from tests.lake.pickling_runner import PicklingRunner
from tests.run.project import Project, did, reasons
from tests.servers.kafka import Server

SCHEMA = "id long, page string"
A, B, C = {"id": 1, "page": "a"}, {"id": 2, "page": "b"}, {"id": 3, "page": "c"}
IN_BOTH_PLACES = pytest.mark.parametrize("clicks", ["process", "units"], indirect=True)
"""Marks a test that reads in this process, and in units as executors do."""


class Clicks:
    """A project whose only source is Kafka, with a topic of its own; `units` is the runner of its work units."""

    def __init__(self, server: Server, root: Path, units: PicklingRunner | None = None) -> None:
        self.units = units
        self.server = server
        self.root = root
        self.topic = f"clicks-{uuid.uuid4().hex[:8]}"
        self.project = Project(root)

    def make(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """Make the topic, or another whose name begins the same."""
        return self.server.topic(self.topic + name, partitions, **config)

    def put(self, *values: Any, name: str = "", **options: Any) -> None:
        self.server.put(self.topic + name, *values, **options)

    def declare(self, words: str = f'schema="{SCHEMA}"', on: str = "") -> None:
        """Declare the source with these options of rn.kafka, and those of rn.source."""
        text = f'rn.kafka("{self.topic}", servers="{self.server.servers}", {words})'
        self.project.flow(f'rn.source("ods.clicks", {text}{on})', orders=None)

    def run(self) -> dict[str, str]:
        ran = self.project.run()
        assert not ran.errors, ran.errors
        return did(ran)

    def fails(self) -> RunnelError:
        with pytest.raises(RunnelError) as raised:
            raise self.project.run().errors[0]
        return raised.value

    def rows(self) -> list[tuple[Any, ...]]:
        return self.project.rows("ods.clicks")

    def why(self) -> str:
        return reasons(self.project.plan())["ods.clicks"]

    def feed(self, **options: Any) -> "Reading":
        """Return the feed alone, without a lake."""
        return Reading(self, options)


class Reading:
    """A feed that is asked and read, with its state."""

    def __init__(self, clicks: Clicks, options: dict[str, Any]) -> None:
        on_bad = options.pop("on_bad", "stop")
        given = {"topic": None if "pattern" in options else clicks.topic, "servers": clicks.server.servers} | options
        if given.get("format", "json") == "json":
            given.setdefault("schema", SCHEMA)
        origin = kafka(**given)
        assert isinstance(origin, Kafka)
        self.origin = origin
        self.source = Source(TableName("ods", "clicks"), self.origin, SourceLocation("flows/flow.py", 4), on_bad=on_bad)
        self.feed = KafkaFeed(self.source, self.origin, clicks.root)
        self.folder = clicks.root
        self._units = clicks.units
        self.state: FeedState | None = None
        self.last: FetchedRows

    def also(self, **options: Any) -> None:
        """Change what was declared."""
        self.origin = replace(self.origin, **options)
        self.feed = KafkaFeed(replace(self.source, origin=self.origin), self.origin, self.folder)

    def news(self) -> FeedChanges:
        return self.feed.find_changes(self.state)

    def waited(self) -> FeedChanges:
        """Return what is new, once something is: Kafka ends a transaction a moment after it has said so."""
        until = time.monotonic() + 20
        while (found := self.news()).is_empty and time.monotonic() < until:
            time.sleep(0.01)
        return found

    def read(
        self, news: FeedChanges | None = None, tell: Progress = lambda what, done, total: None
    ) -> list[dict[str, Any]]:
        """Return the rows that are new; `tell` hears how far it is."""
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        news = news or self.news()
        if self._units is None:
            self.last = self.feed.fetch(self.state, news, folder, tell)
        else:
            self.last = fetch_in_units(self.feed, self.state, news, self._units, folder, tell)
        self.state = json.loads(json.dumps(self.last.state))
        rows: list[dict[str, Any]] = []
        for part in self.last.parts:
            if part.format == "parquet":
                rows += pq.read_table(part.path).to_pylist()
            else:
                rows += [json.loads(line) for line in part.path.read_bytes().splitlines() if line]
        return rows

    def ids(self) -> list[int]:
        return [row["id"] for row in self.read()]


def open_clicks(request: pytest.FixtureRequest, server: Server, root: Path) -> Clicks:
    """Return a project whose runs read in this process, or in units if the test says so."""
    if getattr(request, "param", "process") == "process":
        return Clicks(server, root)
    return Clicks(server, root, use_units(request))
