"""A worker as people see it: it says what goes on, waits for what is away, and stops in order."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.flow_state import streams
from runnel.names import TableName
from tests.cli import conftest as commands
from tests.faults.tcp_proxy import Proxy
from tests.servers.kafka import Server, _free_ports
from tests.service.running_service import Up, tail, until

Cli = Callable[..., commands.Done]
cli = commands.cli
KAFKA = """
rn.source("ods.{name}", rn.kafka("{topic}", servers="{servers}", schema="id long, name string"), poll="continuous",
          on_bad="quarantine")
"""
FILES = """
rn.source("ods.files", rn.files("data/*.csv", schema="id long, name string"), poll="continuous")
"""
SETTINGS = '[project]\nname = "shop"\n'


class Going:
    """A project that one process keeps going, and what is in its topics."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root, self.server, self.log = root, server, root / "up.txt"
        self.mark = uuid.uuid4().hex[:8]
        self.away = _free_ports(1)[0]  # where nobody answers yet
        names = ("clicks", "anew", "away")
        for name in names:
            server.topic(self.topic(name))
        at = {"away": f"127.0.0.1:{self.away}"}
        flow = [KAFKA.format(name=one, topic=self.topic(one), servers=at.get(one, server.servers)) for one in names]
        (root / "flows").mkdir()
        (root / "data").mkdir()
        (root / "runnel.toml").write_text(SETTINGS)
        (root / "flows/flow.py").write_text("\n".join(["import runnel as rn", *flow, FILES]))
        self.lake: Lake = rn.open(root)
        self.up = Up(root, self.log, command="worker")

    def topic(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def put(self, name: str, *rows: Any, partition: int = 0) -> None:
        self.server.put(self.topic(name), *rows, partition=partition)

    def ids(self, table: str) -> list[int]:
        if table not in self.lake.tables():
            return []
        return sorted(row[0] for row in self.lake.query(f"select id from {table}", engine="duckdb").rows())

    def has(self, table: str, *ids: int) -> None:
        """Wait until a table has rows, each once."""
        until(
            lambda: self.ids(table) == list(ids), 30, lambda: f"{table} has {self.ids(table)}\n{tail(self.log)}", 0.05
        )

    def says(self, *words: str) -> None:
        """Wait until it has said some words, in one line."""
        said = lambda: any(all(word in line for word in words) for line in self.up.said().splitlines())  # noqa: E731
        until(said, 30, lambda: f"it did not say {words}, but\n{tail(self.log)}", 0.05)

    def status(self, table: str) -> streams.StreamRecord:
        found = self.lake.store.db.read(streams.list_streams)
        return found["main", TableName.parse(table)]


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory, kafka: Server) -> Iterator[Going]:
    """Return a project with four sources, kept going by one process for all tests."""
    going = Going(tmp_path_factory.mktemp("going"), kafka)
    with going.up, closing(going.lake):
        yield going


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}"}


def test_events_and_files_come_in(going: Going, cli: Cli) -> None:
    going.put("clicks", row(1))
    (going.root / "data/a.csv").write_text("id,name\n1,a\n")
    going.has("ods.clicks", 1)
    going.has("ods.files", 1)
    (going.root / "data/b.csv").write_text("id,name\n2,b\n")
    going.has("ods.files", 1, 2)
    assert "shop on main: 4 sources" in going.up.said()
    found = cli("-C", str(going.root), "status", "--json").json["streams"]
    clicks = next(one for one in found if one["table"] == "ods.clicks")
    assert (clicks["kind"], clicks["state"], clicks["problem"]) == ("source", "running", None)
    assert clicks["rows"] >= 1 and clicks["batch_ms"] > 0 and clicks["delay_ms"] >= 0
    shown = cli("-C", str(going.root), "status")
    assert shown.code == 0 and all(word in shown.out for word in ("ods.clicks", "ods.files", "source", "running"))


def test_a_malformed_event_is_set_aside(going: Going) -> None:
    before = going.ids("ods.clicks")
    going.put("clicks", "{no event", {"id": "many", "name": "n"}, row(2))
    going.has("ods.clicks", *before, 2)
    aside = "select count(*) from quarantine.ods_clicks"
    assert going.lake.query(aside, engine="duckdb").rows() == [(2,)]
    assert going.status("ods.clicks").state == "running"


def test_a_partition_is_added(going: Going) -> None:
    from confluent_kafka.admin import NewPartitions

    before, topic = going.ids("ods.clicks"), going.topic("clicks")
    going.server.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
    going.server.settle(topic, 2)
    going.server.producer.list_topics(topic)  # it knows the old number for a while
    going.put("clicks", row(30), partition=1)
    going.put("clicks", row(31))
    going.has("ods.clicks", *before, 30, 31)


def test_a_broker_that_is_away_is_waited_for(going: Going, cli: Cli) -> None:
    going.says("ods.away waits", "KAFKA_UNREACHABLE")
    until(lambda: going.status("ods.away").state == "waiting", 10, lambda: "it does not wait")
    shown = cli("-C", str(going.root), "status")
    assert f"127.0.0.1:{going.away} does not answer" in shown.err and "waiting" in shown.out
    going.put("away", row(1))
    proxy = Proxy(going.server.port, going.away)
    going.has("ods.away", 1)
    going.says("ods.away continues")
    until(lambda: going.status("ods.away").problem is None, 10, lambda: "its problem stays")
    proxy.close()


def test_a_topic_made_anew_is_told_and_others_go_on(going: Going) -> None:
    topic = going.topic("anew")
    going.put("anew", row(1))
    going.has("ods.anew", 1)
    going.server.admin.delete_topics([topic])[topic].result(20)
    going.server.settle(topic, 0)
    going.server.topic(topic)
    going.put("anew", row(7))
    going.says("ods.anew failed", "SOURCE_KAFKA_RESET")
    until(lambda: going.status("ods.anew").state == "failed", 10, lambda: "nobody is told")
    assert "created again" in (going.status("ods.anew").problem or "")
    before = going.ids("ods.clicks")
    going.put("clicks", row(50))
    going.has("ods.clicks", *before, 50)
    assert going.ids("ods.anew") == [1]


def test_ctrl_c_ends_it_in_order(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "runnel.toml").write_text(SETTINGS)
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "flows/flow.py").write_text("import runnel as rn\n" + FILES)
    (tmp_path / "data/a.csv").write_text("id,name\n1,a\n")
    assert cli("status").out.startswith("down: no service is running\nnothing runs schedules, streams and sources")
    log = tmp_path / "log"
    with rn.open(tmp_path) as lake, Up(tmp_path, log, None, "--json", command="worker") as up:
        until(lambda: "ods.files" in lake.tables(), 30, lambda: tail(log), 0.05)
        state = lambda: cli("status", "--json").json["streams"][0]["state"]  # noqa: E731
        assert (state(), up.stop(), state()) == ("running", 0, "idle"), tail(log)
        assert json.loads(up.said().splitlines()[0])["project"] == "shop"
        assert lake.runs()[0].state == "succeeded"
        with Up(tmp_path, log, command="worker") as again:
            until(lambda: state() == "running", 30, lambda: tail(log), 0.05)
            again.kill()
        assert state() == "stopped"
        assert (lake.runs()[0].state, lake.tables()) == ("lost", ["ods.files"])


def test_a_stream_is_reset_unless_it_runs(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "runnel.toml").write_text(SETTINGS)
    views = TableName.parse("dwd.views")
    with rn.open(tmp_path) as lake:
        db = lake.store.db
        with streams.acquire_lease(db, "main", views, "code") as held:
            held.record_start("q1", "code")
            running = cli("stream", "reset", "dwd.views")
            assert (running.code, "STREAM_RUNNING" in running.err) == (1, True), running
        assert "close: `dwd.views`" in cli("stream", "reset", "dwd.view").err
        assert "starts again from the beginning" in cli("stream", "reset", "dwd.views").out
        assert db.read(streams.list_streams) == {}
        with streams.acquire_lease(db, "main", views, "code"):
            streams._own_tokens.clear()  # a process that had our number, and was killed
            with streams.acquire_lease(db, "main", views, "code") as again:
                again.set_state("idle")
