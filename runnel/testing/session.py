"""Provide the small Spark session of a test run, started once and kept until the process ends."""

from typing import TYPE_CHECKING

from runnel.spark.session import SparkSettings, running_session, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",  # nothing to adapt on a handful of rows; planning is quicker
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than processing a handful of rows
}


def session() -> "SparkSession":
    """Return the session of this process, started on first use with settings that suit a few rows."""
    existing_session = running_session()
    return (
        existing_session
        if existing_session is not None
        else start_spark(SparkSettings(master="local[1]", conf=_SMALL_CONF))
    )
