"""What `runnel status` says of a stream: what it has not read, what it left out, and how fast it is now."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runnel.failpoint import InjectedFault
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.control.declarations import ProjectDeclarations, TableDeclaration
from runnel.names import TableName
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.project.inspection.backlog import list_backlogs
from runnel.project.inspection.stream_health import StreamHealth, list_stream_health, read_measures
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.stream import failpoints
from runnel.run.stream.batch_metrics import BatchMetricsRecorder
from runnel.run.stream.stream_query import StreamQuery, StreamSpec
from runnel.service.alarms.health_alarms import find_backlog_alarm
from tests.cli import conftest as commands
from tests.run.stream.click_files import SOURCE, Clicks
from tests.service.running_service import until

Cli = Callable[..., commands.Done]
cli = commands.cli
MINUTE = TableName.parse("dws.minute")
STREAM = """
@rn.task("dws.minute", stream="clicks", watermark=("ts", "5 minutes"))
def minute(clicks):
    return clicks.groupBy(F.window("ts", "1 minute")).count().select("window.start", "count")
"""


def read_health(clicks: Clicks) -> StreamHealth:
    with clicks.open() as lake:
        return {health.table: health for health in list_stream_health(lake)}[MINUTE]


def read_batches(clicks: Clicks) -> list[dict[str, Any]]:
    with clicks.open() as lake:
        return [dict(batch.detail) for batch in read_measures(lake, MINUTE)]


def write_clicks(clicks: Clicks, name: str, *times: str) -> None:
    lines = [f'{{"id": {number}, "page": "/a", "user": "ada", "ts": "{at}"}}\n' for number, at in enumerate(times)]
    clicks.write(f"data/{name}.jsonl", "".join(lines))


def test_rows_of_the_future_and_late_rows_are_counted_in_their_batch(clicks: Clicks) -> None:
    clicks.streams(STREAM)
    write_clicks(clicks, "a", "2026-01-01T10:00:00Z", "2099-01-01T00:00:00Z", "2026-01-01T10:20:00Z")
    clicks.ran()
    write_clicks(clicks, "b", "2026-01-01T10:21:00Z", "2026-01-01T09:00:00Z", "2026-01-01T10:30:00Z")
    clicks.ran()
    batches = [batch for batch in read_batches(clicks) if batch["input_rows"]]
    assert [(batch["ahead_rows"], batch["late_rows"]) for batch in batches] == [(1, 0), (0, 1)]
    health = read_health(clicks)
    assert (health.ahead_rows, health.late_rows) == (1, 1)
    assert health.warnings == (
        "1 row of the last 15 minutes is more than an hour ahead of the clock, and was left out",
        "1 row of the last 15 minutes came later than the watermark allows, and was left out",
    )
    age_batches(clicks, "2026-01-01T00:00:00.000000Z")
    health = read_health(clicks)
    assert (health.batches, health.rows_per_second, health.rows, health.late_rows, health.ahead_rows) == (0, 0, 0, 0, 0)
    assert (health.batch_ms, health.parts_ms, health.warnings) == (None, {}, ())


def age_batches(clicks: Clicks, at: str) -> None:
    """Let all batches have ended long ago."""
    with clicks.open() as lake:
        lake.store.db.write(lambda connection: connection.execute(schema.batches.update().values(at=at)))


def test_unread_rows_are_counted_without_a_worker(clicks: Clicks, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.streams(STREAM)
    write_clicks(clicks, "a", "2026-01-01T10:00:00Z")
    clicks.ran()
    assert (read_health(clicks).behind_rows, read_health(clicks).behind_seconds) == (0, 0)
    write_clicks(clicks, "b", *["2026-01-01T10:01:00Z"] * 9_000)
    clicks.ran("ods.clicks")
    expect_behind(clicks, cli, 9_000)
    with clicks.open() as lake:  # they have waited for a day when a worker starts, and is killed
        head, yesterday = lake.log()[0].id, format_time(datetime.now(UTC) - timedelta(days=1))
        publish_earlier = schema.commits.update().where(schema.commits.c.id == head).values(at=yesterday)
        lake.store.db.write(lambda connection: connection.execute(publish_earlier))
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", f"{failpoints.LOGS_EXTENDED}:error")
    with pytest.raises(InjectedFault):  # its append log has the rows, Spark has not read them
        clicks.run("dws.minute")
    monkeypatch.delenv("RUNNEL_FAIL")
    expect_behind(clicks, cli, 9_000, age_seconds=86_400)
    with clicks.open() as lake:
        declared = ProjectDeclarations({"dws.minute": TableDeclaration("dws.minute")})
        (alarm,) = find_backlog_alarm(list_backlogs(lake.store), declared, 0, lake.store.db.now())
        assert alarm.what == "no worker is running, and 9,000 rows wait for the stream of `dws.minute`"
        assert alarm.since == yesterday
    write_clicks(clicks, "c", *["2026-01-01T10:01:30Z"] * 5)
    clicks.ran("ods.clicks")
    expect_behind(clicks, cli, 9_005, age_seconds=86_400)
    clicks.ran()
    assert (read_health(clicks).behind_rows, read_health(clicks).behind_seconds) == (0, 0)
    assert " nothing " in cli("status").out


def expect_behind(clicks: Clicks, cli: Cli, rows: int, age_seconds: int = 0) -> None:
    health = read_health(clicks)
    assert health.behind_rows == rows and health.behind_seconds is not None
    assert age_seconds < health.behind_seconds < age_seconds + 600
    assert f" {rows:,} rows, " in cli("status").out
    (entry,) = [item for item in cli("status", "--json").json["streams"] if item["table"] == "dws.minute"]
    assert entry["behind_rows"] == rows


def test_the_first_batch_has_its_metrics_although_the_stream_waited_for_rows(clicks: Clicks) -> None:
    clicks.flow(SOURCE.replace('timestamp"', 'timestamp", may_be_empty=True') + STREAM, orders=None)
    clicks.ran("ods.clicks")
    with clicks.open() as lake, ExitStack() as stack:
        flow = load_project_flow(lake)
        task = flow.tasks[MINUTE]
        code = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of(task)
        assert clicks.spark is not None
        stream = StreamQuery.open(stack, lake.store, StreamSpec(flow, task, "main", code, "r1"), clicks.spark)
        query = stream.start(is_endless=True)
        recorder = BatchMetricsRecorder(lake.store.db, query)
        until(lambda: query.lastProgress is not None, 30, lambda: "Spark reports nothing while there are no rows")
        recorder.record_new_batches()
        write_clicks(clicks, "b", "2099-01-01T00:00:00Z")
        clicks.ran("ods.clicks")
        stream.extend_logs()
        until(lambda: len(read_batches(clicks)) > 0, 60, lambda: "no batch")

        def has_metrics() -> bool:
            recorder.record_new_batches()
            return "ahead_rows" in read_batches(clicks)[0]

        until(has_metrics, 30, lambda: f"no metrics: {read_batches(clicks)}")
        stream.finish()
    assert read_batches(clicks)[0]["ahead_rows"] == 1
