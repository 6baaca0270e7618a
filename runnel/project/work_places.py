"""Read from the settings of a project where the work of sources, sinks and upkeep is done."""

from typing import TYPE_CHECKING

from runnel.lake.work_runner import WorkContext
from runnel.model.work_place import WorkPlace, WorkPlaceRules
from runnel.spark.executors.runner_choice import RunnerChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from runnel.declare.settings import Settings
    from runnel.model.progress import Progress


def read_work_place_rules(settings: "Settings") -> WorkPlaceRules:
    """Return the rules that the settings of a project make."""
    from runnel.spark.jvm.command_line import is_local

    return WorkPlaceRules(
        settings.run_on,
        not is_local(settings.master),
        settings.executors_from_bytes,
        settings.shared_folders,
        settings.split_bytes,
    )


def create_work_context(
    settings: "Settings",
    get_spark: "Callable[[], SparkSession]",
    job_group: str,
    report_progress: "Progress | None" = None,
) -> WorkContext:
    """Return where an operation of a project does its work."""
    return WorkContext(RunnerChoice(read_work_place_rules(settings), get_spark, job_group), report_progress)


def get_shown_place(settings: "Settings", place: WorkPlace | None) -> WorkPlace | None:
    """Return a place if users should see it: the project has a cluster, or its settings name a place."""
    return place if read_work_place_rules(settings).has_choice else None
