"""Let the tests of a run use a cluster: `make test-cluster` starts it and names it in the environment."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.spark.session import SparkSettings
    from tests.servers.spark_cluster import Cluster

_MASTER, _SECRET = "RUNNEL_TEST_MASTER", "RUNNEL_TEST_SECRET"


def describe_cluster(cluster: "Cluster") -> dict[str, str]:
    """Return the environment of tests that use a cluster, with all work of their projects on its executors."""
    return {
        _MASTER: cluster.url,
        _SECRET: cluster.secret,
        "RUNNEL__SPARK__RUN_ON": "executors",
        "RUNNEL__SPARK__SHARED": json.dumps(["/"]),  # all of it is one machine
    }


def uses_cluster() -> bool:
    """Tell whether the tests of this run use a cluster."""
    return _MASTER in os.environ


def build_cluster_settings() -> "SparkSettings":
    """Return the settings of the session of a test run on its cluster."""
    from runnel.spark.session import SparkSettings

    conf = {
        "spark.authenticate.secret": os.environ[_SECRET],
        "spark.driver.memory": "1g",
        "spark.executor.instances": "2",
        "spark.executor.memory": "640m",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),  # for functions of tests in tasks
    }
    return SparkSettings(master=os.environ[_MASTER], conf=conf)
