"""How far Spark is with a step: tasks done of tasks known, over the stages of its jobs."""

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress(session: "SparkSession", group: str) -> tuple[int, int]:
    """Return (done, total) of Spark's tasks in a job group; (0, 0) where it does nothing now."""
    done = total = 0
    with suppress(Exception):  # a stage may end while it is looked at
        tracker = session.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            found = tracker.getJobInfo(job)
            for stage in found.stageIds if found else ():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done, total = done + info.numCompletedTasks, total + info.numTasks
    return done, total
