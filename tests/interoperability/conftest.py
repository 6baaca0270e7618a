"""A lake that Spark, PyIceberg and Runnel share."""

from typing import TYPE_CHECKING

import pytest

from runnel.lake.store import Store
from tests.interoperability.engines import Engines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def engines(store: Store, spark: "SparkSession") -> Engines:
    """Return the engines over an empty lake."""
    return Engines(store, spark)
