"""The Spark session of a test run: started once, small, kept until the process ends."""

from typing import TYPE_CHECKING

from runnel.spark.session import SparkSettings, running, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",  # nothing to adapt on a handful of rows; planning is quicker
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than a handful of rows
}


def session() -> "SparkSession":
    """Return the session of this process, started on first use with settings that suit a few rows."""
    found = running()
    return found if found is not None else start(SparkSettings(master="local[1]", conf=_SMALL))
