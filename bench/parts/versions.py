"""Fork a lake of 1,000 tables, and publish 100 tables at once, against 100 commits one by one through Spark."""

import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids

from bench.figure import Figure
from runnel.lake.history.branches import delete_branch, fork_branch
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName

TABLES, PUBLISHED = 1000, 100


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
        data = pa.table({"id": [1, 2, 3]})
        schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(data.schema))
        changes = []
        for number in range(TABLES):
            name = TableName.parse(f"ods.t{number}")
            location, _ = table_metadata.create_table(store, name, schema)
            changes.append(CommitChange(name, None, location))
        publish(store.db, CommitDraft("main", "1,000 tables", "bench", tuple(changes)))
        return [_fork(store), *_publish(store, data, Path(folder))]


def _fork(store: Store) -> Figure:
    taken = []
    for number in range(11):
        head = store.commit("main")
        started = time.perf_counter()
        fork_branch(store.db, f"b{number}", head, "bench")
        taken.append((time.perf_counter() - started) * 1000)
        delete_branch(store.db, f"b{number}")
    return Figure(f"fork of a lake with {TABLES:,} tables", statistics.median(taken), "ms", "<= 100", {"all_ms": taken})


def _publish(store: Store, data: pa.Table, folder: Path) -> list[Figure]:
    state = list(store.state("main").items())[:PUBLISHED]
    staged = []
    for name, version in state:
        files = parquet_writer.write_rows(
            store, table_metadata.load_metadata(store, version.location), data.to_batches()
        )
        staged.append(
            CommitChange(
                name,
                version.location,
                snapshots.stage_version(store, version.location, snapshots.VersionEdit(added=files)),
            )
        )
    started = time.perf_counter()
    publish(store.db, CommitDraft("main", "100 tables", "bench", tuple(staged)))
    ours = time.perf_counter() - started
    theirs = _spark_commits(store, [name for name, _ in state])
    return [
        Figure(f"publish of {PUBLISHED} staged tables in one commit", ours, "s", "<= 1"),
        Figure(f"{PUBLISHED} separate Iceberg commits through Spark", theirs, "s"),
        Figure("separate commits through Spark / one publish", theirs / ours),
    ]


def _spark_commits(store: Store, names: list[TableName]) -> float:
    """Commit to each table by itself, metadata only, so that no data is written on either side."""
    from runnel.spark.catalog_conf import build_catalog_conf
    from runnel.spark.session import SparkSettings, start_spark, stop_spark

    conf = build_catalog_conf("main", store.db.url.render_as_string(hide_password=False), store.warehouse)
    spark = start_spark(SparkSettings(master="local[2]", conf=conf))
    try:
        spark.sql(f"alter table main.{names[0]} set tblproperties ('warm' = '1')")
        started = time.perf_counter()
        for name in names:
            spark.sql(f"alter table main.{name} set tblproperties ('bench' = '1')")
        return time.perf_counter() - started
    finally:
        stop_spark()
