"""A fresh project for each test, on the one Spark session of the test run."""

from tests.run.conftest import project  # noqa: F401
