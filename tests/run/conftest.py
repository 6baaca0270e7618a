"""A fresh project for each test, on the one Spark session of the test run."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.run.equivalence.mutations import swift
from tests.run.project import Project
from tests.run.task_context import context  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def few_rows() -> "Iterator[None]":
    """Let runs have sessions that compile no code, which takes far longer than computing a few rows."""
    with swift():
        yield


@pytest.fixture
def project(tmp_path: Path, spark: "SparkSession") -> Project:
    """Return an empty project."""
    return Project(tmp_path, spark)
