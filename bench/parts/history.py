"""A history of 10,000 commits against one of 10: log, show and a query at an old commit, in process."""

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids

from bench.figure import Figure
from runnel.lake.history.commits import Commit, CommitChange, read_changes, read_history
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.query.engine import run_query

LONG, SHORT = 10_000, 10
OLD = 5
TIMES = 60
TABLE = TableName("ods", "orders")


def run(long: int = LONG) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        lakes = {count: _lake(Path(folder) / str(count), count) for count in (SHORT, long)}
        short, tall = lakes[SHORT], lakes[long]
        figures = [
            _figure(f"log of 10 commits, history of {long:,} / {SHORT}", tall, short, _log),
            _figure(f"show of an old commit, history of {long:,} / {SHORT}", tall, short, _show),
            _figure(f"query at an old commit, history of {long:,} / {SHORT}", tall, short, _query),
            _figure(f"query at the head, history of {long:,} / {SHORT}", tall, short, _query_head),
        ]
        for store, _ in lakes.values():
            store.close()
        return figures


def _lake(folder: Path, count: int) -> tuple[Store, Commit]:
    """Publish a table that swings between two versions, so that only the history grows; return its fifth commit."""
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    data = pa.table({"id": range(1000), "amount": range(1000)})
    schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(data.schema))
    location, metadata = table_metadata.create_table(store, TABLE, schema)
    versions: list[str | None] = [None]
    for _ in range(2):
        files = parquet_writer.write_rows(store, metadata, data.to_batches())
        location = snapshots.stage_version(store, location, snapshots.VersionEdit(added=files))
        versions.append(location)
    old = None
    for number in range(count - 1):  # the lake's first commit is its own
        before, after = versions[0 if number == 0 else 1 + (number - 1) % 2], versions[1 + number % 2]
        made = publish(store.db, CommitDraft("main", f"write {number}", "bench", (CommitChange(TABLE, before, after),)))
        old = made if number == OLD else old
    assert old is not None
    return store, old


def _log(store: Store, old: Commit) -> None:
    head = store.commit("main")
    assert len(store.db.read(lambda connection: read_history(connection, head, limit=SHORT))) == SHORT


def _show(store: Store, old: Commit) -> None:
    found = store.commit(old.id[:12])
    assert store.db.read(lambda connection: read_changes(connection, found.id))


def _query(store: Store, old: Commit) -> None:
    assert run_query(store, f"select count(*), sum(amount) from {TABLE}", at=old.id).rows()


def _query_head(store: Store, old: Commit) -> None:
    assert run_query(store, f"select count(*), sum(amount) from {TABLE}").rows()


def _figure(
    name: str, tall: tuple[Store, Commit], short: tuple[Store, Commit], work: Callable[[Store, Commit], None]
) -> Figure:
    best = {"tall": math.inf, "short": math.inf}
    for _ in range(TIMES):
        for key, lake in (("tall", tall), ("short", short)):
            started = time.perf_counter()
            work(*lake)
            best[key] = min(best[key], (time.perf_counter() - started) * 1000)
    details: dict[str, object] = {"long_ms": round(best["tall"], 3), "short_ms": round(best["short"], 3)}
    return Figure(name, best["tall"] / best["short"], "", "<= 1.5", details)
