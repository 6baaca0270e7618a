"""Write a frame into a table of the slot, and compute the metrics of its checks and its content in the same pass.

One Spark job per write. The row count that Spark observed is compared with that of the new snapshot; if they differ, as
after the loss of an executor, the metrics are computed again from the written rows.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Check
from runnel.lake.iceberg.snapshot_descent import RUN_PROPERTY
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.phase_timer import PASS, measure_phase
from runnel.run import content_tally
from runnel.run.checks.row_checks import CheckFinding, build_check_metrics, refuse_invalid_checks
from runnel.run.content_tally import EMPTY_TALLY, ContentTally, quote_name
from runnel.run.write.added_rows import open_added_rows
from runnel.run.write.target_layout import list_columns
from runnel.spark.per_driver_cache import PerDriverCache

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Observation

    from runnel.names import TableName
    from runnel.run.task_context import TaskContext

Mode = Literal["overwrite", "append", "replace", "rewrite"]
_PATIENCE_SECONDS = 10.0  # observed metrics arrive asynchronously and may be lost
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True)
class FrameTarget:
    """Where and how a frame is written: onto the version `base` of a table, which has its columns already.

    `replace` removes the files whose rows all match `overwrite_condition`. `rewrite` does too, or removes all files if
    there is no condition, and writes `retained_rows` again, unchecked. `content_names` are the columns of the content;
    all by default.
    """

    base: str
    mode: Mode
    overwrite_condition: str | None = None
    retained_rows: "DataFrame | None" = None
    content_names: Sequence[str] | None = None


@dataclass(frozen=True)
class FrameWrite:
    """The result of writing a frame: the version, the tally of its new rows, and the findings of row checks.

    `retained_tally` is that of the retained rows that were written again.
    """

    location: str
    tally: ContentTally
    findings: tuple[CheckFinding, ...]
    retained_tally: ContentTally = EMPTY_TALLY


def save_frame(
    context: "TaskContext",
    table: "TableName",
    frame: "DataFrame",
    target: FrameTarget,
    checks: Sequence[Check] = (),
) -> FrameWrite:
    """Write a frame into a table. Raises CHECK_INVALID before anything is written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    retained_rows, content_names, columns = target.retained_rows, target.content_names, list_columns(frame.schema)
    content_columns = [column for column in columns if content_names is None or column.name in content_names]
    observation, retained_observation = Observation(), Observation()
    observed_frame = observe_rows(frame, observation, columns, content_columns, checks)
    if retained_rows is not None:
        observed_frame = observed_frame.union(
            observe_rows(retained_rows, retained_observation, columns, content_columns, ())
        )
    slots.place_tables(context.store.db, context.slot, {table: target.base})
    writer = observed_frame.writeTo(context.identifier(table)).option(f"snapshot-property.{RUN_PROPERTY}", context.run)
    with measure_phase(PASS):
        if target.mode == "append":
            writer.append()
        else:
            writer.overwrite(F.expr(target.overwrite_condition) if target.overwrite_condition else F.lit(True))
        location = slots.read_location(context.store.db, context.slot, table)
        assert location is not None
        observed_values, retained_values = (
            wait_for_observation(observation),
            wait_for_observation(retained_observation) if retained_rows is not None else None,
        )
    observed_count = sum(
        observation_values[content_tally.ROWS]
        for observation_values in (observed_values, retained_values)
        if observation_values is not None
    )
    if retained_rows is not None and (
        observed_values is None or retained_values is None or observed_count != _count_added_rows(context, location)
    ):
        observed_values, retained_values = (
            measure_rows(frame, columns, content_columns, checks),
            measure_rows(retained_rows, columns, content_columns, ()),
        )
    elif observed_values is None or observed_count != _count_added_rows(context, location):
        with open_added_rows(context, table, target.base, location) as rows:
            observed_values = measure_rows(rows, columns, content_columns, checks)
    findings = tuple(CheckFinding.from_metrics(check, observed_values, index) for index, check in enumerate(checks))
    return FrameWrite(
        location,
        content_tally.read(observed_values),
        findings,
        content_tally.read(retained_values) if retained_values is not None else EMPTY_TALLY,
    )


def observe_rows(
    frame: "DataFrame",
    observation: "Observation",
    columns: Sequence[Column],
    content_columns: Sequence[Column],
    checks: Sequence[Check],
) -> "DataFrame":
    """Return a frame whose rows Spark observes as they are written, with the metrics of `measure_rows`."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    hashed = frame.selectExpr("*", *content_tally.build_row_hashes(content_columns))
    try:
        check_columns = [F.expr(sql).alias(name) for name, sql in build_check_metrics(checks, columns).items()]
        observed_frame = hashed.observe(observation, *_sum_columns.get(frame.sparkSession.sparkContext), *check_columns)
    except AnalysisException as error:
        refuse_invalid_checks(frame, checks, columns)
        raise error
    return observed_frame.selectExpr(*(quote_name(column.name) for column in columns))


def _build_sum_columns(_context: "SparkContext") -> "list[SparkColumn]":
    """Return the aggregates of a tally as Spark columns; they depend on no session and no frame."""
    from pyspark.sql import functions as F

    return [F.expr(sql).alias(name) for name, sql in content_tally.build_sums().items()]


_sum_columns = PerDriverCache(_build_sum_columns)


@measure_phase("check")
def measure_rows(
    rows: "DataFrame", columns: Sequence[Column], content_columns: Sequence[Column], checks: Sequence[Check]
) -> Mapping[str, Any]:
    """Compute the metrics that a write would observe for these rows, in a separate job."""
    from pyspark.sql import functions as F

    aggregates = content_tally.build_sums() | build_check_metrics(checks, columns)
    hashed = rows.selectExpr("*", *content_tally.build_row_hashes(content_columns))
    return hashed.agg(*(F.expr(sql).alias(name) for name, sql in aggregates.items())).collect()[0].asDict()


def wait_for_observation(observation: "Observation") -> Mapping[str, Any] | None:
    """Return what Spark observed, or None if it does not arrive; PySpark's own wait may never end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while observation._jo is not None and observation._jo.getRowOrEmpty().isEmpty():
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE_SECONDS)
    return observation.get


def _count_added_rows(context: "TaskContext", location: str) -> int:
    snapshot = load_metadata(context.store, location).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary.additional_properties.get("added-records", 0))
