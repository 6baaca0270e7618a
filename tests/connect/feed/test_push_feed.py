"""Events that were pushed, as runs take them in: each once, bad ones by the policy, kept for as long as is said."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.declare.model.endpoints import Push
from runnel.errors import Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.control import declarations
from runnel.lake.flow_state.inbox_level import InboxLevel
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, write_events
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.names import TableName
from runnel.project.execution.release import format_quarantined_rows
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.sources.continuous_ingest import ContinuousIngest
from tests.run.project import did, reasons

EVENTS = TableName("ods", "events")
FLOW = """
import runnel as rn
rn.source("ods.events", rn.http(schema="id long, kind string", keep="7 days"), on_bad="{on_bad}")
"""
CHANGES = """
import runnel as rn
log = rn.http(schema="id long, name string, at long, op string")
rn.source("ods.people", rn.changes(log, key="id", sequence_by="at", delete_when="op = 'D'"))
"""


class Shop:
    """A project to which events are pushed."""

    def __init__(self, root: Path, catalog: str) -> None:
        self.root = root
        (root / "flows").mkdir()
        (root / "runnel.toml").write_text(f'[project]\nname = "shop"\n[lake]\ncatalog = "{catalog}"\n')
        self.declare("quarantine")
        self.lake: Lake = rn.open(root)

    def declare(self, on_bad: str) -> None:
        self.flow(FLOW.format(on_bad=on_bad))

    def flow(self, text: str) -> None:
        (self.root / "flows/flow.py").write_text(text)

    def push(self, *events: Any, source: str = "ods.events") -> None:
        lines = [json.dumps(event if isinstance(event, dict) else {"id": event}) for event in events]
        assert write_events(self.lake.store.db, [PushRequest(source, lines)]) == [PushReceipt(len(events), 0)]

    def run(self, branch: str = "main") -> dict[str, str]:
        return did(self.lake.run(branch=branch))

    def ids(self, at: str = "main") -> list[int]:
        return sorted(row[0] for row in self.lake.query("select id from ods.events", at=at, engine="duckdb").rows())

    def taken_in(self, branch: str = "main") -> bool:
        """Take in what is there as `runnel up` does, and tell whether there was something."""
        flow = load_project_flow(self.lake)
        source, spark = flow.sources[EVENTS], lambda: self.lake.spark
        intake = ContinuousIngest(
            self.lake.store, source, self.root, branch, "r1", lambda *_: None, spark, lambda: None
        )
        return intake.ingest_once() is not None

    def later(self, days: float) -> int:
        """Sweep as if some days had passed, and return how many events went."""
        declarations.write_declarations(self.lake.store.db, collect_declarations(load_project_flow(self.lake)))
        now = datetime.now(UTC) + timedelta(days=days)
        would = gc(self.lake.store, Retention(), now=now, dry_run=True).pruned_events
        assert gc(self.lake.store, Retention(), now=now).pruned_events == would
        return would

    def level(self) -> InboxLevel:
        return InboxReader(self.lake.store.db).read_level(EVENTS)


@pytest.fixture
def both(tmp_path: Path, catalog: str) -> Iterator[Shop]:
    """Return a shop; the test runs on SQLite and on PostgreSQL."""
    shop = Shop(tmp_path, catalog)
    yield shop
    shop.lake.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, f"sqlite:///{tmp_path}/.runnel/catalog.db")
    yield shop
    shop.lake.close()


def test_each_event_is_taken_in_once(both: Shop) -> None:
    shop = both
    assert reasons(shop.lake.plan()) == {"ods.events": "ingest: nothing was pushed yet"}
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [] and shop.run() == {}
    shop.push(1, 2)
    shop.push(3)
    plan = shop.lake.plan()
    assert (reasons(plan), plan.jvm) == ({"ods.events": "ingest: 3 new events"}, False)
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2, 3]
    assert shop.run() == {} and reasons(shop.lake.plan())["ods.events"].startswith("skip")
    shop.push(3)
    assert reasons(shop.lake.plan()) == {"ods.events": "ingest: 1 new event"}
    shop.run()
    assert shop.ids() == [1, 2, 3, 3]  # without a key the same again is another


def test_events_before_the_first_run(shop: Shop) -> None:
    shop.push(1)
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1]


def test_bad_events_follow_the_policy(shop: Shop) -> None:
    shop.push(1, "x", {"id": 2, "kind": "a", "more": True})
    shop.declare("stop")
    with pytest.raises(RunnelError, match=r"ods\.events from 1 to 3, line 2, column `id`: 'x': not a long"):
        shop.run()
    shop.declare("quarantine")
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2]
    aside = shop.lake.query("select raw from quarantine.ods_events", engine="duckdb").rows()
    assert aside == [('{"id": "x"}',)]
    shop.declare("drop")
    shop.push("y", 3)
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2, 3]


def test_corrected_events_of_several_runs_are_released_at_once(shop: Shop) -> None:
    for events in ((1, "x"), ("y", 3), ("z",)):
        shop.push(*events)
        shop.run()
    lines = format_quarantined_rows(shop.lake, "ods.events", shop.lake.quarantine("ods.events"))
    assert lines == [
        '{"quarantined_row": "ods.events from 1 to 2:2", "id": "x"}',
        '{"quarantined_row": "ods.events from 3 to 4:1", "id": "y"}',
        '{"quarantined_row": "ods.events from 5 to 5:1", "id": "z"}',
    ]
    corrected = shop.root / "bad.jsonl"
    corrected.write_text("\n".join(lines).replace('"x"', "10").replace('"z"', "12"))
    result = shop.lake.release("ods.events", corrected)
    assert (result.accepted, [bad.row.reason for bad in result.still_bad]) == (
        2,
        ["ods.events from 3 to 4, line 1, column `id`: 'y': not a long"],
    )
    assert shop.ids() == [1, 3, 10, 12]
    assert shop.lake.discard("ods.events").rows == 1
    assert shop.run() == {} and shop.lake.quarantines() == []


def test_a_rewind_reads_again(shop: Shop) -> None:
    shop.push(1)
    shop.run()
    shop.push(2, 3)
    shop.run()
    shop.lake.revert("main")
    assert shop.run() == {} and shop.ids() == [1]  # a revert keeps the position
    shop.lake.rewind("ods.events", to="main~2")
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2, 3]


def test_erased_events_are_never_taken_in_again(both: Shop) -> None:
    """Those that a run has taken in, those that wait, also where nothing else waits, and those in quarantine."""
    shop, ann = both, {"kind": "ann"}
    shop.push(1, {"id": 2, **ann}, {"id": "x", **ann}, {"id": "y"})
    shop.run()
    shop.push({"id": 3, **ann}, {"id": 4, **ann})
    done = erase(shop.lake.store, EVENTS, "kind = 'ann'")
    assert (done.rows, done.events, done.quarantine and done.quarantine.rows) == (1, 4, 1)
    shop.run()
    assert shop.ids() == [1] and shop.run() == {} and shop.level() == InboxLevel(6, 0)
    shop.push(5)
    shop.lake.rewind("ods.events", to="main~1")
    shop.run()
    assert shop.ids() == [1, 5]
    assert shop.lake.query("select raw from quarantine.ods_events", engine="duckdb").rows() == [('{"id": "y"}',)]


@pytest.mark.parametrize("continuous", [False, True], ids=["by runs", "on and on"])
def test_two_branches_read_the_same_once(shop: Shop, continuous: bool) -> None:
    take = shop.taken_in if continuous else shop.run
    shop.push(1)
    take()
    shop.lake.branch("dev")
    shop.push(2)
    shop.run("dev")
    shop.push(3)
    take()
    assert (shop.ids(), shop.ids("dev")) == ([1, 2, 3], [1, 2])
    shop.lake.merge("dev")
    shop.run()
    assert shop.ids() == [1, 2, 3]
    shop.push(4)
    shop.run("dev")
    shop.lake.merge("dev")
    assert shop.ids() == [1, 2, 3, 4] and not take()


def test_to_see_that_nothing_came_takes_a_glance(shop: Shop) -> None:
    shop.push(1)
    shop.run()
    words = f"import runnel as rn, sys; print(rn.open({str(shop.root)!r}).run().state, 'sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["nothing", "False"]


def test_a_backlog_comes_in_several_commits(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.run.sources.continuous_ingest.MOST_ROWS", 2)
    shop.push(1, 2, 3, 4, 5)
    assert [shop.taken_in() for _ in range(4)] == [True, True, True, False]
    assert shop.ids() == [1, 2, 3, 4, 5]


def test_a_log_of_changes_is_pushed(shop: Shop) -> None:
    shop.flow(CHANGES)
    log = "ods.people__changes"
    shop.push({"id": 1, "name": "Ada", "at": 1}, {"id": 2, "name": "Bob", "at": 1}, source=log)
    shop.run()
    shop.push({"id": 1, "name": "Ada L.", "at": 3}, {"id": 2, "at": 2, "op": "D"}, source=log)
    shop.run()
    assert shop.lake.query("select id, name from ods.people", engine="duckdb").rows() == [(1, "Ada L.")]


def test_what_was_taken_in_long_ago_goes(both: Shop) -> None:
    shop = both
    shop.push(1, 2)
    assert write_events(shop.lake.store.db, [PushRequest("ods.events", ['{"id": 3}'], ["k"])]) == [PushReceipt(1, 0)]
    assert shop.later(30) == 0  # nobody has taken it in
    shop.run()
    shop.push(4)
    assert shop.later(6) == 0
    assert shop.later(8) == 3 and shop.level() == InboxLevel(4, 3)
    keys = schema.inbox_keys.select()
    assert shop.lake.store.db.read(lambda connection: connection.execute(keys).all()) == []
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2, 3, 4]
    assert shop.later(8) == 1 and shop.run() == {}


def test_who_comes_too_late_is_told(shop: Shop) -> None:
    """A branch that has not read what is gone, and a rewind to before it, say so; nothing is left out silently."""
    shop.push(1)
    shop.run()
    shop.lake.branch("dev")
    shop.push(2, 3)
    shop.run()
    shop.push(4)
    assert shop.later(8) == 3
    with pytest.raises(
        RunnelError, match=r"2 events of `ods\.events` that this branch has not read are no longer available"
    ) as told:
        shop.run("dev")
    assert told.value.code == "SOURCE_PUSH_GONE" and "merge main" in str(told.value.fix)
    shop.lake.merge("main", into="dev")
    assert shop.run("dev") == {"ods.events": "ingest"} and shop.ids("dev") == [1, 2, 3, 4]
    shop.run()
    shop.lake.rewind("ods.events", to="main~1")
    assert shop.run() == {"ods.events": "ingest"} and shop.ids() == [1, 2, 3, 4]
    shop.lake.rewind("ods.events", to="main~4")
    assert shop.ids() == [1]
    with pytest.raises(RunnelError, match="are no longer available"):
        shop.run()
    shop.lake.rewind("ods.events", to="main~1")
    assert shop.ids() == [1, 2, 3, 4] and shop.run() == {}


def test_events_that_a_rewind_waits_for_stay(shop: Shop) -> None:
    shop.push(1)
    shop.run()
    shop.push(2)
    shop.run()
    shop.lake.rewind("ods.events", to="main~1")
    assert shop.later(8) == 1 and shop.level() == InboxLevel(2, 1)
    shop.run()
    assert shop.ids() == [1, 2]


WRONG = {
    "an option of polling": (
        {"paging": "page"},
        "`paging` applies only to an API that is polled",
        "leave `paging` out",
    ),
    "an option that there is not": ({"keeps": "1 day"}, "no option `keeps`; close: `keep`", "known"),
    "a time that is none": ({"keep": "soon"}, "`keep` must be a duration", "days"),
    "a key that is no column": ({"key": "idd"}, "not in its schema; close: `id`", "its columns: id"),
    "keep of an API": (
        {"url": "https://example.com/x", "keep": "1 day"},
        "`keep` applies only to pushed events",
        "leave it out",
    ),
}


@pytest.mark.parametrize(("options", "told", "fix"), WRONG.values(), ids=WRONG)
def test_mistakes(options: dict[str, Any], told: str, fix: str) -> None:
    with pytest.raises(Mistake) as found:
        rn.http(**{"schema": "id long", **options})
    assert told in found.value.what and fix in str(found.value.fix)


def test_a_source_has_a_schema() -> None:
    assert rn.http(schema="id long", key="id", keep="2 days") == Push(
        rn.http(schema="id long").schema, ("id",), 2 * 86_400.0
    )
    with pytest.raises(Mistake, match="has no schema") as found:
        rn.source("ods.untyped", rn.http())
    assert 'rn.http(schema="' in str(found.value.fix)
