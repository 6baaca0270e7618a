"""For authors of flows: run a task on literal rows, in a unit test, with one warm Spark session for all tests.

The public names of `rn.testing`; everything else in here is private.
"""

from runnel.testing.run import TaskTestResult, run
from runnel.testing.session import session

__all__ = ["TaskTestResult", "run", "session"]
