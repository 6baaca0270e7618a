"""How fresh a table is that Kafka's events go on and on into, and how it bears that.

A thousand events per second are sent by a process of their own, each with the moment of its sending; it is seen when a
warm query in another process has it. First `runnel up` with the source alone, for 10 minutes: the first 5 are measured,
and afterwards what the many small commits did to queries and commits. Then `runnel up` with a stream that reads the
table; then a hand-written Structured Streaming job with a trigger of one second, whose new files are read as soon as
its catalog names them.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable

import runnel as rn
from bench.clicks import SENT, Sender
from bench.connector import Streaming
from bench.figure import Figure
from bench.freshness import Watcher, part, up
from bench.peers import CATALOG
from runnel.client.lake import Lake
from runnel.errors import RunnelError
from runnel.lake.catalog.database import parse_time
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from runnel.project.inspection.stream_health import read_measures
from tests.servers.kafka import Server

RATE, SECONDS = 1_000, 600
WARM_SECONDS, SHORT_SECONDS = 20, 60
PARTITIONS = 2
FEW = 10  # events that come first, so that all tables are there
TIMES = 30
START_SECONDS = 5  # left out before commits are compared
TABLE, VIEWS = "ods.clicks", "dwd.views"
SOURCE = """import runnel as rn

rn.source("ods.clicks", rn.kafka("clicks", servers="{servers}", schema="{schema}"), poll="continuous")
"""
TASK = """

@rn.task("dwd.views", stream="clicks")
def views(clicks):
    return clicks.where("page <> '/health'").selectExpr("id", "upper(page) AS page", "sent")
"""
SCRIPT = """
spark.sql("CREATE NAMESPACE IF NOT EXISTS {catalog}.ods")
stream("peer", "{catalog}.ods.clicks", {schema!r}, processingTime="1 second").awaitTermination()
"""
OVER_ALL = "SELECT count(*), sum(id), max(sent), count(DISTINCT page) FROM ods.clicks"


def run(seconds: int = SECONDS, short: int = SHORT_SECONDS, warm: int = WARM_SECONDS) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    with Server() as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        project, servers = _project(Path(name) / "runnel", server), server.servers
        sender, figures = _source(project, servers, seconds)
        figures += _task(project, servers, sender.last, short, warm)
        return figures + _peer(Path(name) / "spark", server, short, warm)


def _source(project: Path, servers: str, seconds: int) -> tuple[Sender, list[Figure]]:
    with rn.open(project) as lake:
        with up(project), Watcher(lambda: _newest(lake, TABLE), PARTITIONS) as watcher:
            Sender.start(servers, "clicks", PARTITIONS, FEW, 1).wait()
            watcher.wait(FEW - 1, 60)
            started = time.time()
            sender = Sender.start(servers, "clicks", PARTITIONS, RATE, seconds, FEW)
            sender.wait(seconds + 60)
            ended = time.time()
            watcher.wait(sender.last - 1, 60)
        sent = _sent(lake, TABLE, sender.last)
        until = min(at for _, at in sent[FEW:]) + seconds / 2
        ages = watcher.ages([one for one in sent[FEW:] if one[1] < until])
        told: dict[str, object] = {"events": len(ages), "query_p50_ms": 1000 * median(watcher.asked)}
        named = f"fresh: {RATE:,} events/s for {seconds / 2:.0f} s, seen in a query"
        found = _aged(named, ages, told, ("<= 0.7 s", "<= 1.2 s"))
        return sender, [*found, _commits(lake, started, ended), _queries(lake)]


def _task(project: Path, servers: str, first: int, short: int, warm: int) -> list[Figure]:
    flow = project / "flows" / "flow.py"
    flow.write_text(flow.read_text() + TASK)
    with rn.open(project) as lake:
        with up(project), Watcher(lambda: _newest(lake, VIEWS), PARTITIONS) as watcher:
            watcher.wait(first - 1, 180)
            sender = _steady("clicks", servers, first, short + warm, watcher)
        sent = _sent(lake, VIEWS, sender.last)[first:]
    ages = watcher.ages(sent[-short * RATE :])
    return _aged("fresh: a stream that reads the table, seen in a query", ages)


def _peer(folder: Path, server: Server, short: int, warm: int) -> list[Figure]:
    stock = Streaming(folder)
    script = stock.write(server.servers, 1_000_000, SCRIPT.format(catalog=CATALOG, schema=SENT))
    server.topic("peer", PARTITIONS)
    Sender.start(server.servers, "peer", PARTITIONS, FEW, 1).wait()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, script], env={**os.environ, **stock.env()}, stdout=log, stderr=log)
        try:
            with Watcher(_newest_of(stock), PARTITIONS) as watcher:
                watcher.wait(FEW - 1, 120)
                sender = _steady("peer", server.servers, FEW, short + warm, watcher)
        finally:
            process.terminate()
            process.wait()
    rows = StaticTable.from_metadata(stock.location(TABLE) or "").scan().to_arrow().to_pylist()
    sent = _whole([(row["id"], row["sent"]) for row in rows], sender.last, "Spark's table")
    return _aged("fresh: a Spark job with a trigger of 1 s, seen in its files", watcher.ages(sent[-short * RATE :]))


def _steady(topic: str, servers: str, first: int, seconds: int, watcher: Watcher) -> Sender:
    sender = Sender.start(servers, topic, PARTITIONS, RATE, seconds, first)
    sender.wait(seconds + 60)
    watcher.wait(sender.last - 1, 120)
    return sender


def _aged(
    named: str,
    ages: Sequence[float],
    details: dict[str, object] | None = None,
    targets: tuple[str | None, str | None] = (None, None),
) -> list[Figure]:
    shares = (("p50", 0.5), ("p99", 0.99))
    return [
        Figure(f"{named}: {told}", part(ages, share), "s", target, {**(details or {}), "longest": ages[-1]})
        for (told, share), target in zip(shares, targets, strict=True)
    ]


def _commits(lake: Lake, started: float, ended: float) -> Figure:
    """Compare how long batches took at the beginning and at the end."""
    minutes = 1 + round(time.time() - started) // 60
    found = [
        (parse_time(one.at).timestamp(), one.detail["total_ms"])
        for one in read_measures(lake, TableName.parse(TABLE), "main", minutes)
    ]
    span = min(60.0, (ended - started) / 3)
    begun = started + START_SECONDS
    first = median(ms for at, ms in found if begun <= at < begun + span)
    last = median(ms for at, ms in found if ended - span <= at < ended)
    details: dict[str, object] = {"first_ms": first, "last_ms": last, "batches": len(found)}
    return Figure("fresh: time of a commit, last minute / first minute", last / first, "", "<= 1.2", details)


def _queries(lake: Lake) -> Figure:
    """Compare a query over the table with the same over its rows in few files, which a branch has."""
    lake.branch("compacted")
    made = compact(lake.store, TableName.parse(TABLE), branch="compacted")[0]
    taken: dict[str, list[float]] = {"main": [], "compacted": []}
    answers = set()
    for number in range(TIMES + 5):
        for at, times in taken.items():
            started = time.perf_counter()
            answers.add(lake.query(OVER_ALL, at=at).rows()[0])
            times += [time.perf_counter() - started] if number >= 5 else []
    if len(answers) > 1:
        raise RuntimeError(f"the rows differ after they were compacted: {answers}")
    now, then = median(taken["main"]), median(taken["compacted"])
    details: dict[str, object] = {"files": made.files_before, "ms": 1000 * now, "compacted_ms": 1000 * then}
    return Figure("fresh: a query over the table / over its rows compacted", now / then, "", "<= 1.2", details)


def _newest(lake: Lake, table: str) -> tuple[int | None, ...] | None:
    columns = ", ".join(f"max(CASE WHEN id % {PARTITIONS} = {one} THEN id END)" for one in range(PARTITIONS))
    try:
        found = lake.query(f"SELECT {columns} FROM {table}").rows()[0]
    except RunnelError as error:
        if error.code != "TABLE_UNKNOWN":
            raise
        return None
    return tuple(found)


def _newest_of(stock: Streaming) -> Callable[[], list[int | None] | None]:
    """Return a look at the files that came to a table of Spark's since the last one."""
    seen: set[int | str] = set()
    highest: list[int | None] = [None] * PARTITIONS

    def look() -> list[int | None] | None:
        location = stock.location(TABLE)
        if location is None:
            return None
        if location in seen:
            return highest
        table = StaticTable.from_metadata(location)
        for snapshot in table.snapshots():
            if snapshot.snapshot_id not in seen:
                for path in _added(table, snapshot.snapshot_id):
                    for event in pq.read_table(path, columns=["id"])["id"].to_pylist():
                        one = event % PARTITIONS
                        highest[one] = max(event, highest[one] or 0)
                seen.add(snapshot.snapshot_id)
        seen.add(location)
        return highest

    return look


def _added(table: StaticTable, snapshot: int) -> list[str]:
    found = table.snapshot_by_id(snapshot)
    assert found is not None
    return [
        entry.data_file.file_path.removeprefix("file:")
        for manifest in found.manifests(table.io)
        if manifest.added_snapshot_id == snapshot
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED
    ]


def _sent(lake: Lake, table: str, last: int) -> list[tuple[int, float]]:
    """Return the events of a table and when they were sent, after seeing that all are there once."""
    return _whole((tuple(row) for row in lake.query(f"SELECT id, sent FROM {table}").rows()), last, table)


def _whole(rows: Iterable[tuple[int, float]], last: int, what: str) -> list[tuple[int, float]]:
    found = sorted(rows)
    if [event for event, _ in found] != list(range(last)):
        raise RuntimeError(f"{what} has {len(found)} rows, and not each of {last} events once")
    return found


def _project(folder: Path, server: Server) -> Path:
    (folder / "flows").mkdir(parents=True)
    (folder / "runnel.toml").write_text('[project]\nname = "fresh"\n')
    (folder / "flows" / "flow.py").write_text(SOURCE.format(servers=server.servers, schema=SENT))
    server.topic("clicks", PARTITIONS)
    return folder


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line(), figure.details)
