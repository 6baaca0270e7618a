"""Say what to do about a late table: what the runs of its schedules do, and the commands that help. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.lake.control import queue_entry

if TYPE_CHECKING:
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.service.alarms.deadlines import TimedSchedule
    from runnel.service.alarms.run_outcomes import EndedRun


@dataclass(frozen=True)
class ScheduledRuns:
    """The runs of schedules on main, by cause: those that are queued or running, and the last one if it failed."""

    open_entries: "Mapping[str, QueueEntry]" = field(default_factory=dict)
    failed_runs: "Mapping[str, EndedRun]" = field(default_factory=dict)

    @classmethod
    def collect(cls, open_entries: "Iterable[QueueEntry]", failed_runs: "Iterable[EndedRun]") -> "ScheduledRuns":
        """Build it from all runs. Of a schedule's open runs, the running one counts: another one waits for it."""
        by_state = sorted(open_entries, key=lambda entry: entry.state == queue_entry.RUNNING)
        return cls(
            {entry.cause: entry for entry in by_state if entry.branch == "main"},
            {failed_run.cause: failed_run for failed_run in failed_runs if failed_run.branch == "main"},
        )


NO_RUNS = ScheduledRuns()


def describe_lateness_fix(table: str, schedules: "Sequence[TimedSchedule]", runs: ScheduledRuns) -> str:
    """Return what to do about a late table; the first obstacle counts: an open run, a failed one, a pause."""
    for schedule in schedules:
        if entry := runs.open_entries.get(f"schedule/{schedule.name}"):
            return _describe_open_run(schedule.name, entry)
    for schedule in schedules:
        if failed_run := runs.failed_runs.get(f"schedule/{schedule.name}"):
            return (
                f"run {failed_run.id} of schedule `{schedule.name}` failed: `runnel runs {failed_run.id}` shows why; "
                f"`runnel retry {failed_run.id}` runs it again"
            )
    compute = f"`runnel run -s +{table}` computes it now, with what it reads"
    paused_names = [schedule.name for schedule in schedules if schedule.is_paused]
    if paused_names:
        name = paused_names[0]
        return f"schedule `{name}` is paused: `runnel schedules resume {name}` resumes it; {compute}"
    return f"`runnel runs` shows what ran; {compute}"


def _describe_open_run(schedule: str, entry: "QueueEntry") -> str:
    if entry.state == queue_entry.RUNNING:
        attempt = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
        return (
            f"run {entry.id} of schedule `{schedule}` is running{attempt}: "
            f"`runnel runs {entry.id}` shows its attempts, `runnel cancel {entry.id}` stops it"
        )
    return (
        f"run {entry.id} of schedule `{schedule}` waits in the queue: `runnel status` shows the workers, "
        f"`runnel runs {entry.id}` its attempts"
    )
