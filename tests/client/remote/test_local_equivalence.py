"""What a lake behind a service answers is what it answers from within."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from runnel.client.lake import Lake
from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import quarantine_table_of
from runnel.errors import Conflict, Mistake
from runnel.lake.control.alarms import Alarm, update_alarms
from runnel.lake.history.commits import CommitChange
from runnel.lake.merge.merge import MergeConflict
from runnel.lake.publish import CommitDraft, publish
from runnel.names import TableName
from tests.client.remote.conftest import Pair

SAME: dict[str, Callable[[Lake], Any]] = {
    "tables": lambda lake: lake.tables(),
    "tables at a branch": lambda lake: lake.tables(at="dev"),
    "a table": lambda lake: lake.table("ods.orders", at="dev", versions=2),
    "checks": lambda lake: lake.checks("ods.orders"),
    "the history": lambda lake: lake.log(),
    "of a table": lambda lake: lake.log("dev", table="ods.orders", limit=1),
    "branches": lambda lake: lake.branches(),
    "tags": lambda lake: lake.tags(),
    "a difference": lambda lake: lake.diff("v1", "dev"),
    "of a table only": lambda lake: lake.diff("main", "dev", "ods.orders"),
    "files": lambda lake: lake.ls("raw.docs"),
    "some files": lambda lake: lake.ls("raw.docs", "in/m*"),
    "why a load": lambda lake: lake.why("ods.orders"),
    "why a row": lambda lake: lake.why("ods.orders", row="id = 2"),
    "files of a commit": lambda lake: lake.files_of("main"),
    "why a put": lambda lake: lake.why("raw.docs"),
    "runs": lambda lake: lake.runs(),
    "backfills": lambda lake: lake.backfills(),
    "quarantines": lambda lake: lake.quarantines(),
    "rows aside": lambda lake: lake.quarantine("ods.orders"),
    "how it is": lambda lake: lake.status(),
    "alarms": lambda lake: lake.alarms("all"),
    "mutes": lambda lake: lake.mutes(),
}


@pytest.mark.parametrize("ask", SAME.values(), ids=SAME)
def test_the_same_answer(seen: Pair, ask: Callable[[Any], Any]) -> None:
    assert ask(seen.remote) == ask(seen.local)


def test_a_difference_and_a_provenance_are_readable_if_printed(seen: Pair) -> None:
    for lake in (seen.local, seen.remote):
        difference, provenance = str(lake.diff("v1", "dev")), str(lake.why("ods.orders"))
        assert difference.splitlines()[0].split() == ["table", "change", "rows"]
        assert ["ods.orders", "changed", "+1", "-0"] in [line.split() for line in difference.splitlines()]
        assert str(lake.diff("main", "main")) == "no difference"
        commit = lake.log("main", limit=1)[0]
        assert provenance.splitlines()[0] == f"ods.orders at {commit.id[:8]} on main, 3 rows"
        assert provenance.splitlines()[1] == "  made by    runnel load"


QUERIES = {
    "numbers and days": "select * from ods.orders order by id",
    "decimals": "select cast(1.5 as decimal(20,4)) as d, cast(null as decimal(4,1)) as n",
    "times": "select timestamp '2026-01-02 03:04:05.678901' as t, date '2026-01-02' as d",
    "nested, bytes, times without zone": "select * from raw.odd",
    "no rows": "select id, amount from ods.orders where id < 0",
    "two columns of one name": "select id, id from ods.orders",
    "many rows": "select a.id as x, b.id as y from ods.orders a, ods.orders b, ods.orders c order by x, y",
}


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_queries_have_the_same_types_and_rows(seen: Pair, sql: str) -> None:
    near, far = seen.local.query(sql, engine="duckdb"), seen.remote.query(sql, engine="duckdb")
    assert (far.at, far.engine, far.reason, far.columns) == (near.at, "duckdb", None, near.columns)
    assert far.schema.equals(near.schema, check_metadata=True)
    assert far.table().equals(near.table())
    assert list(far.df().dtypes) == list(near.df().dtypes)


def test_a_query_at_a_version_as_a_stream(seen: Pair) -> None:
    with seen.remote.query("select id from ods.orders order by id", at="dev") as answer:
        assert [value for batch in answer for value in batch.column(0).to_pylist()] == [1, 2, 3, 4]
    with pytest.raises(Mistake, match="read or closed"):
        answer.table()
    assert "<td" in seen.remote.query("select 1 as x")._repr_html_()
    assert "ods.orders" in seen.remote._repr_html_() and "shop" in repr(seen.remote)


WRONG: dict[str, tuple[Callable[[Lake], Any], str]] = {
    "an unknown table": (lambda lake: lake.query("select * from ods.ordres"), "TABLE_UNKNOWN"),
    "no table name": (lambda lake: lake.table("orders"), "NAME_TABLE"),
    "an unknown ref": (lambda lake: lake.log("dve"), "REF_UNKNOWN"),
    "no SELECT": (lambda lake: lake.query("drop table ods.orders"), "SQL_NOT_READ_ONLY"),
    "an unknown engine": (lambda lake: lake.query("select 1", engine="spork"), "SQL_ENGINE"),  # type: ignore[arg-type]
    "an unknown run": (lambda lake: lake.runs("nothing"), "RUN_UNKNOWN"),
    "a branch that exists": (lambda lake: lake.branch("dev"), "BRANCH_EXISTS"),
    "a reserved name": (lambda lake: lake.branch("run_1"), "NAME_RESERVED"),
    "merging into itself": (lambda lake: lake.merge("main"), "MERGE_SELF"),
    "no such files": (lambda lake: lake.get("raw.docs", "/tmp/nowhere", "*.pdf"), "FILES_NO_MATCH"),
    "no file to put": (lambda lake: lake.put("raw.docs", "/nowhere/at/all"), "FILES_NOT_FOUND"),
    "no file to remove": (lambda lake: lake.rm("raw.docs", "in/order.csv"), "FILES_NO_MATCH"),
    "files of a table of rows": (lambda lake: lake.rm("ods.orders", "*"), "FILES_NOT_A_FILE_TABLE"),
    "an unknown backfill": (lambda lake: lake.pause_backfill("nothing"), "BACKFILL_UNKNOWN"),
    "an unknown schedule": (lambda lake: lake.pause_schedule("nothing"), "SCHEDULE_UNKNOWN"),
    "a row that no table has": (lambda lake: lake.why("ods.orders", row="id = 99"), "WHY_NO_ROW"),
    "a wrong condition": (lambda lake: lake.why("ods.orders", row="id ==== 1"), "WHY_CONDITION"),
    "no rows to discard": (lambda lake: lake.discard("ods.orders"), "DISCARD_NOTHING"),
    "an unknown alarm": (lambda lake: lake.acknowledge_alarm("failed/nothing"), "ALARM_UNKNOWN"),
    "a mute of nothing": (lambda lake: lake.mute("lat", "2 hours"), "MUTE_UNKNOWN"),
    "a mute without a duration": (lambda lake: lake.mute("late", "soon"), "MUTE_DURATION"),
    "nothing to unmute": (lambda lake: lake.unmute("late"), "MUTE_UNKNOWN"),
    "rows aside of no table": (lambda lake: lake.quarantine("ods.ordres"), "QUARANTINE_UNKNOWN"),
}


@pytest.mark.parametrize(("ask", "code"), WRONG.values(), ids=WRONG)
def test_the_same_errors(seen: Pair, ask: Callable[[Any], Any], code: str) -> None:
    told = []
    for lake in (seen.local, seen.remote):
        with pytest.raises(Mistake) as error:
            ask(lake)
        told.append((type(error.value), error.value.to_json(), error.value.exit_code))
    assert told[0][1]["code"] == code
    if code != "SQL_ENGINE":  # the service checks the form of a request first
        assert told[0] == told[1]


def test_versions(pair: Pair) -> None:
    lake = pair.remote
    made = lake.branch("fix", at="v1")
    assert made == pair.local.branches()[2] and made.author == "ada"
    assert lake.tag("v2", "dev") == pair.local.tags()[1]
    merged = lake.merge("dev")
    assert merged.commit == pair.local.log(limit=1)[0] and merged.plan.source.branch == "dev"
    assert [(str(step.table), step.action) for step in merged.plan.steps] == [("ods.orders", "take")]
    assert lake.merge("dev").commit is None
    undone = lake.revert("main")
    assert (undone.kind, undone) == ("revert", pair.local.log(limit=1)[0])


def test_a_merge_that_can_not_be(pair: Pair) -> None:
    root = pair.local.settings.root
    (root / "other.csv").write_text("id,day,amount,extra\n9,2026-01-09,1.00,x\n")
    for branch in ("main", "dev"):
        pair.local.load("ods.orders", root / "other.csv", branch=branch, replace=True)
    with pytest.raises(MergeConflict) as error:
        pair.remote.merge("dev")
    assert isinstance(error.value, Conflict) and error.value.exit_code == 1
    assert [str(step.table) for step in error.value.tables] == ["ods.orders"]


def test_files(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/ü.txt").write_text("ü")
    (folder / "large.bin").write_bytes(bytes(range(256)) * 10_000)
    before = len(pair.local.log())
    done = pair.remote.put("raw.docs", folder, prefix="more")
    assert (done.added, done.replaced, done.unchanged) == (2, 0, 0)
    assert done.commit == pair.local.log(limit=1)[0] and len(pair.local.log()) == before + 1, "one commit for both"
    assert pair.remote.put("raw.docs", folder, prefix="more").commit is None
    paths = ["more/a/b/ü.txt", "more/large.bin"]
    assert [one.path for one in pair.remote.ls("raw.docs", "more/**")] == paths
    assert pair.remote.ls("raw.docs") == pair.local.ls("raw.docs")
    got = pair.remote.get("raw.docs", tmp_path / "out", "more/**")
    assert (got.written, got.unchanged) == (2, 0)
    for path in paths:
        there, here = tmp_path / "out" / path, folder / path.removeprefix("more/")
        assert there.read_bytes() == here.read_bytes()
        assert abs(there.stat().st_mtime - here.stat().st_mtime) < 0.01
    assert pair.remote.get("raw.docs", tmp_path / "out", "more/**").unchanged == 2
    (tmp_path / "out/more/large.bin").write_text("other")
    with pytest.raises(Mistake, match="other contents"):
        pair.remote.get("raw.docs", tmp_path / "out", "more/**")


def test_discarded_rows(pair: Pair) -> None:
    store, table = pair.local.store, TableName.parse("ods.orders")
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        QuarantinedRow(f"{number},x", f"data/{number}.csv, line 2: bad", f"data/{number}.csv", "r", at)
        for number in range(3)
    ]
    location = quarantine.append(store, quarantine.create(store, table), rows)
    publish(store.db, CommitDraft("main", "aside", "ada", (CommitChange(quarantine_table_of(table), None, location),)))
    assert pair.remote.quarantine("ods.orders", file="1.csv") == pair.local.quarantine("ods.orders", file="data/1.csv")
    result = pair.remote.discard("ods.orders", file="1.csv")
    assert (result.rows, result.commit) == (1, pair.local.log(limit=1)[0])
    assert [row.file for row in pair.remote.quarantine("ods.orders")] == ["data/0.csv", "data/2.csv"]


def test_alarms(pair: Pair) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    failed = Alarm("failed/dws.day +x", "failed", "it failed", "2026-01-02T00:00:00.000000Z", run="r1")
    update_alarms(pair.local.store.db, [failed], now)
    (before,) = pair.remote.alarms()
    acknowledged = pair.remote.acknowledge_alarm(failed.key, note="on it")
    assert (acknowledged.alarm.acknowledged_by, acknowledged.alarm.note) == ("ada", "on it")
    mute = pair.remote.mute(before.alarm.id, "2 hours")
    assert (mute.subject, mute.muted_by) == (failed.key, "ada")
    assert pair.remote.alarms() == pair.local.alarms() and pair.remote.mutes() == pair.local.mutes() == [mute]
    assert pair.remote.alarms()[0].muted_until == mute.muted_until
    assert pair.remote.unmute(before.alarm.id) == mute
    dismissed = pair.remote.dismiss_alarm(before.alarm.id)
    assert pair.remote.alarms() == [] and pair.remote.alarms("over") == pair.local.alarms("all") == [dismissed]


def test_a_page_is_not_the_whole(pair: Pair) -> None:
    for number in range(3):
        pair.local.tag(f"t{number}")
        pair.remote.submit(f"a.b{number}")
    asked = []
    whole = pair.remote._connection.get

    def small(path: str, **params: Any) -> Any:
        asked.append(path)
        return whole(path, **{**params, **({"limit": 2} if "limit" in params else {})})

    pair.remote._connection.get = small  # type: ignore[method-assign]
    assert pair.remote.log() == pair.local.log() and asked.count("/commits") > 1
    assert [run.id for run in pair.remote.runs()] == [run.id for run in pair.local.runs()] and len(asked) > 3


def test_arrow_for_others(seen: Pair) -> None:
    """Anyone who knows Arrow can read an answer; who answered stands in the schema."""
    headers = {"Accept": "application/vnd.apache.arrow.stream"}
    found = seen.api.ask("POST", "/query", json={"sql": "select id from ods.orders", "limit": 2}, headers=headers)
    reader = pa.ipc.open_stream(found.content)
    assert b'"engine": "duckdb"' in reader.schema.metadata[b"runnel"]
    assert reader.read_all().num_rows == 2
