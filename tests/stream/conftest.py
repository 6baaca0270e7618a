"""Projects whose tables are read as streams."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka import Server
from tests.stream.clicks import Clicks
from tests.stream.events import Events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def clicks(tmp_path: Path, spark: "SparkSession") -> Clicks:
    """Return a project with a source of clicks, in files."""
    return Clicks(tmp_path, spark)


@pytest.fixture
def events(tmp_path: Path, spark: "SparkSession", kafka: Server) -> Events:
    """Return a project with sources in Kafka."""
    return Events(tmp_path, spark, kafka)
