"""Write a frame into a table of the slot, and count in the same pass what its checks and its content need.

One job of Spark per write. What Spark observed is compared with what the table says that it got; where they differ,
as after the loss of an executor, what was written is counted once more.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Check
from runnel.lake.iceberg.snapshot_descent import RUN
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.phase_timer import PASS, phase
from runnel.run import content_tally
from runnel.run.checks.row_checks import Finding, invalid, metrics
from runnel.run.content_tally import NOTHING, Tally, quoted
from runnel.run.write.added_rows import added_rows
from runnel.run.write.target_layout import columns_of
from runnel.spark.per_driver_cache import PerDriver

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Observation

    from runnel.names import TableName
    from runnel.run.task_context import Context

Mode = Literal["overwrite", "append", "replace", "rewrite"]
_PATIENCE_SECONDS = 10.0  # Spark's news come through a queue that may lose them
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True)
class Written:
    """What was written: the version, what its new rows are, and how the checks of rows went.

    `kept` are the rows that were written again beside them.
    """

    location: str
    tally: Tally
    findings: tuple[Finding, ...]
    kept: Tally = NOTHING


def save(
    context: "Context",
    table: "TableName",
    frame: "DataFrame",
    *,
    base: str,
    mode: Mode,
    checks: Sequence[Check] = (),
    content: Sequence[str] | None = None,
    where: str | None = None,
    beside: "DataFrame | None" = None,
) -> Written:
    """Write a frame onto the version `base` of a table, which has its columns already.

    To `replace` takes out whole files, those of which all rows fulfil `where`; to `rewrite` does too, or takes out all,
    and writes the rows `beside` once more, unchecked. `content` are the columns that make up the content; all, unless
    told. Raises CHECK_INVALID before anything is written.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    columns = columns_of(frame.schema)
    counted = [column for column in columns if content is None or column.name in content]
    observation, again = Observation(), Observation()
    written = observed(frame, observation, columns, counted, checks)
    if beside is not None:
        written = written.union(observed(beside, again, columns, counted, ()))
    slots.place(context.store.db, context.slot, {table: base})
    writer = written.writeTo(context.identifier(table)).option(f"snapshot-property.{RUN}", context.run)
    with phase(PASS):
        if mode == "append":
            writer.append()
        else:
            writer.overwrite(F.expr(where) if where else F.lit(True))
        location = slots.location(context.store.db, context.slot, table)
        assert location is not None
        found, more = news(observation), news(again) if beside is not None else None
    told = sum(one[content_tally.ROWS] for one in (found, more) if one is not None)
    if beside is not None and (found is None or more is None or told != _rows_added(context, location)):
        found, more = measured(frame, columns, counted, checks), measured(beside, columns, counted, ())
    elif found is None or told != _rows_added(context, location):
        with added_rows(context, table, base, location) as rows:
            found = measured(rows, columns, counted, checks)
    findings = tuple(Finding.read(check, found, at) for at, check in enumerate(checks))
    return Written(
        location, content_tally.read(found), findings, content_tally.read(more) if more is not None else NOTHING
    )


def observed(
    frame: "DataFrame",
    observation: "Observation",
    columns: Sequence[Column],
    counted: Sequence[Column],
    checks: Sequence[Check],
) -> "DataFrame":
    """Return a frame of which Spark observes, as its rows pass, what `measured` tells."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    hashed = frame.selectExpr("*", *content_tally.hashes(counted))
    try:
        checked = [F.expr(sql).alias(name) for name, sql in metrics(checks, columns).items()]
        found = hashed.observe(observation, *_columns.of(frame.sparkSession.sparkContext), *checked)
    except AnalysisException as error:
        raise invalid(frame, checks, columns) or error from error
    return found.selectExpr(*(quoted(column.name) for column in columns))


def _sums(context: "SparkContext") -> "list[SparkColumn]":
    """Return the aggregates of a tally for Spark; they depend on no session and no frame."""
    from pyspark.sql import functions as F

    return [F.expr(sql).alias(name) for name, sql in content_tally.sums().items()]


_columns = PerDriver(_sums)


@phase("check")
def measured(
    rows: "DataFrame", columns: Sequence[Column], counted: Sequence[Column], checks: Sequence[Check]
) -> Mapping[str, Any]:
    """Return what a write would observe of these rows, by a job of its own."""
    from pyspark.sql import functions as F

    wanted = content_tally.sums() | metrics(checks, columns)
    hashed = rows.selectExpr("*", *content_tally.hashes(counted))
    return hashed.agg(*(F.expr(sql).alias(name) for name, sql in wanted.items())).collect()[0].asDict()


def news(observation: "Observation") -> Mapping[str, Any] | None:
    """Return what Spark observed, or None where it does not say; waiting for it as PySpark does may never end."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while observation._jo is not None and observation._jo.getRowOrEmpty().isEmpty():
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE_SECONDS)
    return observation.get


def _rows_added(context: "Context", location: str) -> int:
    snapshot = load(context.store, location).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary.additional_properties.get("added-records", 0))
