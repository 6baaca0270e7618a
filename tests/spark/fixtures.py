"""The one Spark session of a test run, and what tests need to start others in processes of their own."""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cluster.session import build_cluster_settings, uses_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Use an archive that is there, but leave no process behind that makes one.
os.environ.setdefault("RUNNEL_CDS", "ready")


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Start Spark once; tests add their lakes as slots or catalogs of their own names."""
    from runnel.spark.session import SparkSettings, start_spark, stop_spark

    found: list[SparkSession] = []
    settings = SparkSettings(master="local[2]", conf={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"})
    if uses_cluster():
        settings = build_cluster_settings()
    # The thread that starts Spark ends before the first test: the JVM must not end with it.
    starter = threading.Thread(target=lambda: found.append(start_spark(settings)))
    starter.start()
    starter.join()
    yield found[0]
    stop_spark()
