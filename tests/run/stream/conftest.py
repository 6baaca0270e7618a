"""Projects whose tables are read as streams."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.run.stream.click_files import Clicks
from tests.run.stream.kafka_events import Events
from tests.servers.kafka import Server

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
