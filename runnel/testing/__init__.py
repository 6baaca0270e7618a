"""For authors of flows: run a task on literal rows, in a unit test, with one warm Spark session for all tests."""

from runnel.testing.run import Tested, run
from runnel.testing.session import session

__all__ = ["Tested", "run", "session"]
