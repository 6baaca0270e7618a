"""A fresh project for each test, as for runs."""

from tests.run.conftest import project  # noqa: F401
