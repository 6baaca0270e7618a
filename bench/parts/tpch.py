"""TPC-H: 22 queries, warm, by Runnel, by DuckDB straight on the same Parquet files, and by Spark; answers compared."""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import sqlglot
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import assign_fresh_schema_ids

from bench.figure import Figure
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.query.engine import run_query

QUERIES = Path(__file__).parents[1] / "tpch"
TIMES = 5
Rows = list[tuple[Any, ...]]


def run(scale: float = 1) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
        load(store, Path(folder) / "generated", scale)
        texts = {path.stem: path.read_text() for path in sorted(QUERIES.glob("q*.sql"))}
        straight = _straight(store)
        ours, theirs, answers = {}, {}, {}
        for name, text in texts.items():
            (ours[name], answers[name]), (theirs[name], other) = _both(store, straight, text)
            assert _same(answers[name], other, 1e-5), f"{name}: Runnel and DuckDB differ"
        spark = _spark(store, texts, answers)
        store.close()
    return _figures(scale, ours, theirs, spark)


def load(store: Store, folder: Path, scale: float) -> None:
    """Generate the tables and load them in one commit."""
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run(
        [program, "parquet", "-s", str(scale), "--output-dir", folder], check=True, stdout=subprocess.DEVNULL
    )
    changes = []
    for path in sorted(folder.glob("*.parquet")):
        name = TableName("tpch", path.stem)
        with pq.ParquetFile(path) as found:
            schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(found.schema_arrow))
            empty, metadata = table_metadata.create_table(store, name, schema)
            files = parquet_writer.write_rows(store, metadata, found.iter_batches(parquet_writer.ROW_GROUP_ROWS))
        changes.append(
            CommitChange(name, None, snapshots.stage_version(store, empty, snapshots.VersionEdit(added=files)))
        )
        path.unlink()
    publish(store.db, CommitDraft("main", "TPC-H", "bench", tuple(changes)))


def _straight(store: Store) -> Callable[[str], Rows]:
    """Return DuckDB over views of the very files that the lake has."""
    connection = duckdb.connect()
    connection.execute("create schema tpch")
    for name, version in store.state().items():
        paths = [
            normalize_location(entry.path)
            for entry in read_entries(store, table_metadata.load_metadata(store, version.location))
        ]
        connection.execute(f"create view {name} as select * from read_parquet({paths})")
    return lambda sql: connection.sql(sql).fetchall()


def _both(store: Store, straight: Callable[[str], Rows], text: str) -> list[tuple[float, Rows]]:
    native = sqlglot.transpile(text, read="spark", write="duckdb")[0]
    return _side_by_side(lambda: run_query(store, text, engine="duckdb").rows(), lambda: straight(native))


def _side_by_side(*asked: Callable[[], Rows]) -> list[tuple[float, Rows]]:
    """Return the best time and the answer of each, after one round to warm up, taking turns."""
    best = [math.inf] * len(asked)
    answers = [ask() for ask in asked]
    for _ in range(TIMES):
        for at, ask in enumerate(asked):
            started = time.perf_counter()
            ask()
            best[at] = min(best[at], time.perf_counter() - started)
    return list(zip(best, answers, strict=True))


def _spark(store: Store, texts: dict[str, str], answers: dict[str, Rows]) -> dict[str, float]:
    from runnel.spark.session import SparkSettings, start_spark, stop_spark

    taken = {}
    session = start_spark(SparkSettings(conf={"spark.sql.shuffle.partitions": "4"}))
    try:
        for name, text in texts.items():
            for _ in range(2):  # the second is warm
                result = run_query(store, text, engine="spark", spark=lambda: session)
                found = result.rows()
                taken[name] = result.seconds
            assert _same(answers[name], found, 1e-9), f"{name}: Runnel and Spark differ"
    finally:
        stop_spark()
    return taken


def _same(ours: Rows, theirs: Rows, within: float) -> bool:
    """Tell whether two answers are equal; plain DuckDB divides decimals as doubles, so numbers may differ a little."""
    ordered = all(_alike(a, b, within) for a, b in zip(ours, theirs, strict=False))
    if not ordered:  # rows that the query's order leaves open
        ours, theirs = (sorted(rows, key=lambda row: str([_rounded(cell) for cell in row])) for rows in (ours, theirs))
    return len(ours) == len(theirs) and all(_alike(a, b, within) for a, b in zip(ours, theirs, strict=True))


def _alike(a: Sequence[Any], b: Sequence[Any], within: float) -> bool:
    def close(x: Any, y: Any) -> bool:
        if isinstance(x, (int, float, Decimal)) and isinstance(y, (int, float, Decimal)):
            return math.isclose(x, y, rel_tol=1e-9, abs_tol=within)
        return bool(x == y)

    return len(a) == len(b) and all(map(close, a, b))


def _rounded(cell: Any) -> Any:
    return round(float(cell), 2) if isinstance(cell, (float, Decimal)) else cell


def _figures(scale: float, ours: dict[str, float], theirs: dict[str, float], spark: dict[str, float]) -> list[Figure]:
    def mean(above: dict[str, float], below: dict[str, float]) -> float:
        return math.exp(sum(math.log(above[name] / below[name]) for name in below) / len(below))

    details = {
        name: {"runnel_s": round(ours[name], 4), "duckdb_s": round(theirs[name], 4), "spark_s": round(spark[name], 4)}
        for name in ours
    }
    what = f"TPC-H SF{scale:g}, {len(ours)} queries, warm, geometric mean"
    return [
        Figure(f"{what}: Runnel / DuckDB on the same files", mean(ours, theirs), "", "<= 1.3", dict(details)),
        Figure(f"{what}: Spark / Runnel", mean(spark, ours)),
    ]
