"""What sources have still to read, as `runnel status`, Python and /metrics say it, while no worker is running."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.errors import RunnelError
from runnel.lake.catalog import schema
from runnel.lake.control import declarations
from runnel.lake.flow_state import streams
from runnel.lake.flow_state.inbox_writer import PushRequest, write_events
from runnel.names import TableName
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.inspection.stream_health import StreamHealth
from runnel.project.planning.lake_facts import read_file_changes
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.sources import continuous_ingest
from runnel.run.sources.continuous_ingest import ContinuousIngest
from runnel.service.api.metrics.catalog_gauges import _stream_metrics
from runnel.service.worker.loops.look_recorder import LookRecorder
from tests.cli import conftest as commands
from tests.servers.kafka import Server

cli = commands.cli
Cli = Callable[..., commands.Done]
LONG_AGO = "2026-01-02T08:00:00.000000Z"


class Shop:
    """A project whose one source a worker once read."""

    def __init__(self, root: Path, catalog: str, source: str) -> None:
        (root / "flows").mkdir()
        (root / "flows/flow.py").write_text(f"import runnel as rn\n{source}\n")
        (root / "runnel.toml").write_text(f'[project]\nname = "shop"\n[lake]\ncatalog = "{catalog}"\n')
        self.root, self.lake = root, rn.open(root)
        self.flow = load_project_flow(self.lake)
        (self.source,) = self.flow.sources.values()
        self.table, self.db = self.source.table, self.lake.store.db
        declarations.write_declarations(self.db, collect_declarations(self.flow))
        storage = self.lake.store.storage
        self.ingest = ContinuousIngest(
            self.lake.store,
            self.source,
            root,
            "main",
            "r1",
            lambda source, state, position: read_file_changes(
                self.flow, source.table, state.get(source.table), lambda: position, storage
            ),
            lambda: self.lake.spark,
            lambda: None,
            LookRecorder(self.db, "main", self.table),
        )

    def health(self) -> StreamHealth:
        (health,) = self.lake.status().streams
        return health

    def behind(self) -> tuple[int | None, int | None, bool]:
        """Return the unread rows and files, and whether their age is known."""
        health = self.health()
        return health.behind_rows, health.behind_files, bool(health.behind_seconds)


@pytest.fixture
def make_shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    lakes = list[Lake]()

    def make(source: str, catalog: str | None = None) -> Shop:
        shop = Shop(tmp_path, catalog or f"sqlite:///{tmp_path}/.runnel/catalog.db", source)
        lakes.append(shop.lake)
        return shop

    yield make
    for lake in lakes:
        lake.close()


def test_an_inbox_is_known_without_a_worker(make_shop: Callable[..., Shop], catalog: str, cli: Cli) -> None:
    shop = make_shop('rn.source("ods.events", rn.http(schema="id long"))', catalog)
    assert shop.lake.status().streams == ()
    events = [json.dumps({"id": number}) for number in range(120)]
    write_events(shop.db, [PushRequest("ods.events", events[:100])])
    received_before = schema.inbox.update().values(received_at=LONG_AGO)
    shop.db.write(lambda connection: connection.execute(received_before))
    write_events(shop.db, [PushRequest("ods.events", events[100:])])
    health = shop.health()
    assert (health.table, health.kind, health.state) == (TableName("ods", "events"), "source", "idle")
    assert (health.behind_rows, health.looked_at) == (120, None)
    assert health.behind_seconds is not None and health.behind_seconds > 86_400
    assert " 120 rows, " in cli("status").out
    gauges = {metric.name: [sample.value for sample in metric.samples] for metric in _stream_metrics(shop.lake)}
    assert gauges["runnel_stream_behind_rows"] == [120] and gauges["runnel_stream_behind_seconds"][0] > 86_400
    streams.record_state(shop.db, "main", shop.table, "running", None)
    shop.ingest.ingest_once()
    assert shop.behind() == (0, None, False)
    write_events(shop.db, [PushRequest("ods.events", events[:7])])
    assert shop.behind() == (7, None, True)


def test_files_that_cannot_be_read_stay_in_the_backlog(make_shop: Callable[..., Shop], cli: Cli) -> None:
    shop = make_shop('rn.source("ods.orders", rn.files("data/*.csv", schema="id long"), poll="1 minute")')
    streams.record_state(shop.db, "main", shop.table, "failed", "1 row can't be read")
    assert shop.behind() == (None, None, False) and cli("status").out.endswith(" ?\n")
    (shop.root / "data").mkdir()
    (shop.root / "data/a.csv").write_text("id\nmany\n")
    with pytest.raises(RunnelError, match="can't be loaded"):
        shop.ingest.ingest_once()
    health = shop.health()
    assert (health.behind_rows, health.behind_files, health.behind_bytes) == (None, 1, 8)
    assert health.behind_seconds and health.looked_at is not None
    assert " 1 file (8 B), " in cli("status").out and ", seen 20" in cli("status").out
    (shop.root / "data/a.csv").write_text("id\n1\n")
    shop.ingest.ingest_once()
    assert shop.behind() == (None, 0, False) and " nothing, seen 20" in cli("status").out


def test_messages_are_those_that_a_worker_saw_last(
    make_shop: Callable[..., Shop], kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(f"backlog-{uuid.uuid4().hex[:8]}")
    kafka.put(topic, *[{"id": number} for number in range(5)])
    shop = make_shop(f'rn.source("ods.clicks", rn.kafka("{topic}", servers="{kafka.servers}", schema="id long"))')
    streams.record_state(shop.db, "main", shop.table, "running", None)
    monkeypatch.setattr(continuous_ingest, "MOST_ROWS", 2)
    assert shop.ingest.ingest_once() is not None
    assert shop.behind() == (5, None, True), "it was recorded before they were read"
    while shop.ingest.ingest_once() is not None:
        pass
    assert shop.behind() == (0, None, False)
