"""Answer a query over one commit of the lake: DuckDB where it is faithful, Spark otherwise.

All tables are read at one commit, so that an answer shows all or nothing of every publish.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from runnel.errors import Mistake, nearest
from runnel.lake.history.commits import Commit, State
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.scan_sql import Unscannable
from runnel.names import TableName, shown
from runnel.query.allow_list import Parsed, parse
from runnel.query.dialect.translate import Column, Unfaithful, translate
from runnel.query.file_pruning import Source, source
from runnel.query.pushdown_filters import table_filters
from runnel.query.query_limits import Bound
from runnel.query.result import Result, Stream, Stuck
from runnel.query.table_schemas import column_types
from runnel.query.unknown_columns import unknown_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.store import Store

ENGINES = ("auto", "duckdb", "spark")
_KEPT = 512
_kept: OrderedDict[tuple[str, tuple[str, ...]], "Prepared"] = OrderedDict()
_guard = threading.Lock()


@dataclass(frozen=True)
class Limits:
    """From which size on DuckDB leaves a query to Spark: the bytes of the files that it would have to read."""

    duckdb_bytes: int = 20 * 10**9


@dataclass(frozen=True)
class Prepared:
    """A query in DuckDB's form over the views of its sources."""

    sql: str
    columns: tuple[Column, ...]
    sources: tuple[Source, ...]

    @property
    def bytes(self) -> int:
        """Return how much has to be read at most."""
        return sum(one.bytes for one in self.sources)

    @property
    def outside(self) -> frozenset[str]:
        """Return the registered files that are not in the warehouse."""
        return frozenset().union(*(one.outside for one in self.sources))


@dataclass(frozen=True)
class Question:
    """A query that passed the allow-list, with the version of every table that it reads."""

    store: "Store"
    parsed: Parsed
    commit: Commit
    versions: State
    bound: Bound = field(default_factory=Bound)
    begun: float = field(default_factory=time.perf_counter)


def query(
    store: "Store",
    sql: str,
    *,
    at: str = "main",
    engine: str = "auto",
    spark: Callable[[], "SparkSession"] | None = None,
    limits: Limits | None = None,
    bound: Bound | None = None,
) -> Result:
    """Ask the lake in Spark SQL, as it was at a ref, and return the answer as a stream.

    `spark` starts Spark or returns the running session; it is called only if Spark is needed.
    The query ends, in either engine, when `bound` says so.
    """
    begun = time.perf_counter()
    if engine not in ENGINES:
        close = nearest(engine, ENGINES)
        what = f"{shown(engine)} is no engine" + (f"; close: `{close}`" if close else "")
        raise Mistake("SQL_ENGINE", what, fix="use auto, duckdb or spark")
    parsed = _parsed(sql)
    commit = store.commit(at)
    versions = store.versions(commit, [TableName.parse(name) for name in parsed.tables])
    question = Question(store, parsed, commit, versions, bound or Bound(), begun)
    hand_over = _hand_over(question, engine, spark)
    reason = None
    try:
        if engine == "spark":
            raise Stuck("Spark was asked for")
        stream = _by_duckdb(question, limits or Limits())
    except Stuck as stuck:
        reason = str(stuck)
        stream = hand_over(reason)
    return Result(stream, at=commit.id, begun=begun, reason=reason, hand_over=hand_over)


def _hand_over(question: Question, engine: str, spark: Callable[[], "SparkSession"] | None) -> Callable[[str], Stream]:
    def ask(reason: str) -> Stream:
        if engine == "duckdb" or spark is None:
            raise Mistake(
                "SQL_NEEDS_SPARK",
                f"only Spark can answer this query: {reason}",
                fix="let Spark answer it: --engine spark, or engine='auto' in Python",
            )
        from runnel.query.engines.spark_engine import ask_spark

        return ask_spark(spark(), question)

    return ask


def _by_duckdb(question: Question, limits: Limits) -> Stream:
    from runnel.query.engines.duckdb_engine import LocalStream

    prepared = prepare(question)
    if prepared.bytes > limits.duckdb_bytes:
        most = f"{limits.duckdb_bytes / 1e9:.1f} GB"
        raise Stuck(f"it reads {prepared.bytes / 1e9:.1f} GB, and DuckDB is for up to {most}")
    return LocalStream(question, prepared)


@lru_cache(maxsize=_KEPT)
def _parsed(sql: str) -> Parsed:
    return parse(sql)


def prepare(question: Question) -> Prepared:
    """Return the query in DuckDB's form, over just the files that it needs; raises Stuck where only Spark can."""
    key = (question.parsed.text, tuple(question.versions[name].location for name in sorted(question.versions)))
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    try:
        prepared = _prepared(question)
    except Unscannable as unscannable:
        raise Stuck(unscannable.what) from None
    with _guard:
        _kept[key] = prepared
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return prepared


def _prepared(question: Question) -> Prepared:
    store, tree = question.store, question.parsed.tree
    locations = {str(name): version.location for name, version in question.versions.items()}
    schemas = {name: load(store, location).schema() for name, location in locations.items()}
    types = {name: column_types(schema) for name, schema in schemas.items()}
    wanted = table_filters(tree, schemas)
    # Translated first under the tables' own names: what can't be is not worth reading manifests for.
    first = translate(question.parsed, types)
    if isinstance(first, Unfaithful):
        raise unknown_column(first.reason, tree, types) or Stuck(first.reason)
    sources = {name: source(store, location, wanted.get(name)) for name, location in locations.items()}
    found = translate(question.parsed, types, {name: one.view for name, one in sources.items()})
    assert not isinstance(found, Unfaithful)
    return Prepared(found.sql, found.columns, tuple(sources.values()))
