"""Read Spark's progress for a step: completed and total tasks, over the stages of its jobs."""

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_task_progress(session: "SparkSession", job_group: str) -> tuple[int, int]:
    """Return (done, total) of Spark's tasks in a job group; (0, 0) if none run now."""
    done = total = 0
    with suppress(Exception):  # a stage may end while it is read
        tracker = session.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(job_group):
            job_info = tracker.getJobInfo(job)
            for stage in job_info.stageIds if job_info else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info is not None:
                    done, total = done + stage_info.numCompletedTasks, total + stage_info.numTasks
    return done, total
