"""Run a query over one commit of the lake: with DuckDB if it gives the same answer as Spark, else with Spark.

All tables are read at one commit, so that a result shows all or nothing of every publish.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from cachetools import LRUCache, cached

from runnel.errors import Mistake, did_you_mean
from runnel.lake.history.commits import Commit, LakeState
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.names import TableName, quote_value
from runnel.query.allow_list import ParsedQuery, parse_allowed_query
from runnel.query.dialect.translate import ResultColumn, UntranslatableQuery, translate
from runnel.query.file_pruning import TableScan, plan_scan
from runnel.query.pushdown_filters import derive_table_filters
from runnel.query.query_limits import QueryLimit
from runnel.query.result import BatchStream, NeedsSpark, QueryResult
from runnel.query.table_schemas import to_spark_types
from runnel.query.unknown_columns import find_unknown_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.store import Store

ENGINES = ("auto", "duckdb", "spark")
_MAX_CACHED = 512


@dataclass(frozen=True)
class DuckdbLimits:
    """The size up to which DuckDB runs a query, in bytes of the files that it has to read; Spark runs larger ones."""

    duckdb_bytes: int = 20 * 10**9


@dataclass(frozen=True)
class PreparedQuery:
    """A query translated to DuckDB's SQL, over the views of its table scans."""

    sql: str
    columns: tuple[ResultColumn, ...]
    scans: tuple[TableScan, ...]

    @property
    def bytes(self) -> int:
        """Return the size of all files that may be read."""
        return sum(scan.bytes for scan in self.scans)

    @property
    def external_files(self) -> frozenset[str]:
        """Return the registered files that are not in the warehouse."""
        return frozenset().union(*(scan.external_files for scan in self.scans))


@dataclass(frozen=True)
class ResolvedQuery:
    """A query that passed the allow-list, with the version of every table that it reads."""

    store: "Store"
    parsed: ParsedQuery
    commit: Commit
    versions: LakeState
    query_limit: QueryLimit = field(default_factory=QueryLimit)
    started_at: float = field(default_factory=time.perf_counter)


def run_query(
    store: "Store",
    sql: str,
    *,
    at: str = "main",
    engine: str = "auto",
    spark: Callable[[], "SparkSession"] | None = None,
    limits: DuckdbLimits | None = None,
    query_limit: QueryLimit | None = None,
) -> QueryResult:
    """Run a query in Spark SQL over the lake at a ref, and return the result as a stream.

    `spark` starts Spark or returns the running session; it is called only if Spark is needed.
    Either engine stops the query when `query_limit` is exceeded.
    """
    started_at = time.perf_counter()
    if engine not in ENGINES:
        what = f"{quote_value(engine)} is not an engine" + did_you_mean(engine, ENGINES)
        raise Mistake("SQL_ENGINE", what, fix="use auto, duckdb or spark")
    parsed = _parse_cached(sql)
    commit = store.commit(at)
    versions = store.versions(commit, [TableName.parse(name) for name in parsed.tables])
    request = ResolvedQuery(store, parsed, commit, versions, query_limit or QueryLimit(), started_at)
    switch_to_spark = _make_spark_fallback(request, engine, spark)
    reason = None
    try:
        if engine == "spark":
            raise NeedsSpark("Spark was requested")
        stream = _run_on_duckdb(request, limits or DuckdbLimits())
    except NeedsSpark as needs_spark:
        reason = str(needs_spark)
        stream = switch_to_spark(reason)
    return QueryResult(stream, at=commit.id, started_at=started_at, reason=reason, switch_to_spark=switch_to_spark)


def _make_spark_fallback(
    request: ResolvedQuery, engine: str, spark: Callable[[], "SparkSession"] | None
) -> Callable[[str], BatchStream]:
    def answer_with_spark(reason: str) -> BatchStream:
        if engine == "duckdb" or spark is None:
            raise Mistake(
                "SQL_NEEDS_SPARK",
                f"only Spark can answer this query: {reason}",
                fix="use Spark: --engine spark, or engine='auto' in Python",
            )
        from runnel.query.engines.spark_engine import run_on_spark

        return run_on_spark(spark(), request)

    return answer_with_spark


def _run_on_duckdb(request: ResolvedQuery, limits: DuckdbLimits) -> BatchStream:
    from runnel.query.engines.duckdb_engine import DuckdbStream

    prepared = prepare_query(request)
    if prepared.bytes > limits.duckdb_bytes:
        limit_text = f"{limits.duckdb_bytes / 1e9:.1f} GB"
        raise NeedsSpark(f"it reads {prepared.bytes / 1e9:.1f} GB, and DuckDB is for up to {limit_text}")
    return DuckdbStream(request, prepared)


@lru_cache(maxsize=_MAX_CACHED)
def _parse_cached(sql: str) -> ParsedQuery:
    return parse_allowed_query(sql)


def _cache_key(request: ResolvedQuery) -> tuple[str, tuple[str, ...]]:
    return request.parsed.text, tuple(request.versions[name].location for name in sorted(request.versions))


_cached_queries: LRUCache[tuple[str, tuple[str, ...]], PreparedQuery] = LRUCache(_MAX_CACHED)


@cached(_cached_queries, key=_cache_key, lock=threading.Lock())
def prepare_query(request: ResolvedQuery) -> PreparedQuery:
    """Translate the query to DuckDB's SQL, over just the files that it needs; raise NeedsSpark if that can't be."""
    try:
        return _translate_query(request)
    except DuckdbScanError as unscannable:
        raise NeedsSpark(unscannable.what) from None


def _translate_query(request: ResolvedQuery) -> PreparedQuery:
    store, tree = request.store, request.parsed.tree
    locations = {str(name): version.location for name, version in request.versions.items()}
    schemas = {name: load_metadata(store, location).schema() for name, location in locations.items()}
    types = {name: to_spark_types(schema) for name, schema in schemas.items()}
    filters = derive_table_filters(tree, schemas)
    # Translate with the tables' own names first: if that fails, no manifest has to be read.
    first_translation = translate(request.parsed, types)
    if isinstance(first_translation, UntranslatableQuery):
        raise find_unknown_column(first_translation.reason, tree, types) or NeedsSpark(first_translation.reason)
    scans = {name: plan_scan(store, location, filters.get(name)) for name, location in locations.items()}
    translation = translate(request.parsed, types, {name: scan.view for name, scan in scans.items()})
    assert not isinstance(translation, UntranslatableQuery)
    return PreparedQuery(translation.sql, translation.columns, tuple(scans.values()))
