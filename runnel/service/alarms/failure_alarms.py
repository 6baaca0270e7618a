"""Build alarms for runs that failed. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.errors import plural
from runnel.lake.control.alarms import Alarm

if TYPE_CHECKING:
    from runnel.lake.control.declarations import ProjectDeclarations
    from runnel.service.alarms.run_outcomes import EndedRun

_SCHEDULE_PREFIX = "schedule/"


def find_failure_alarms(
    failed_runs: "Iterable[EndedRun]",
    declared: "ProjectDeclarations",
    schedules: Iterable[str],
    published_at: Mapping[str, str],
) -> list[Alarm]:
    """Return an alarm for each run that failed and is not mended. `published_at`: when tables were last, on main."""
    existing_causes = {f"{_SCHEDULE_PREFIX}{name}" for name in schedules}
    failure_alarms = []
    for failed_run in failed_runs:
        is_schedule_removed = failed_run.cause.startswith(_SCHEDULE_PREFIX) and failed_run.cause not in existing_causes
        if not is_schedule_removed and not _is_settled(failed_run, declared, published_at):
            failure_alarms.append(_build_alarm(failed_run, declared))
    return failure_alarms


def _is_settled(failed_run: "EndedRun", declared: "ProjectDeclarations", published_at: Mapping[str, str]) -> bool:
    """Return whether all failed tables were published since by a run outside the queue, or are no longer declared."""
    tables = [table for table, _ in failed_run.failed_tables]
    if not tables or not declared.tables:
        return False
    declared_tables = [table for table in tables if table in declared.tables]
    return not declared_tables or (
        failed_run.branch == "main"
        and all(published_at.get(table, "") > failed_run.ended_at for table in declared_tables)
    )


def _build_alarm(failed_run: "EndedRun", declared: "ProjectDeclarations") -> Alarm:
    tables = tuple(name for name, _ in failed_run.failed_tables)
    if not tables and failed_run.cause.startswith(_SCHEDULE_PREFIX):
        name = failed_run.cause.removeprefix(_SCHEDULE_PREFIX)
        tables = tuple(table for table, watched in declared.tables.items() if name in watched.schedules)
    error = failed_run.failed_tables[0][1] if failed_run.failed_tables else failed_run.error or {}
    fixes = [str(error["fix"])] if error.get("fix") else []
    details_command = f"logs {failed_run.run}" if failed_run.failed_tables else f"runs {failed_run.id}"
    fixes += [f"`runnel {details_command}` shows more", f"`runnel retry {failed_run.id}` runs it again"]
    blocks = tuple(declared.find_blocked(tables))
    return Alarm(
        failed_run.key,
        "failed",
        _describe_failure(failed_run),
        failed_run.ended_at,
        "alarm",
        tables,
        blocks,
        "; ".join(fixes),
        failed_run.run,
    )


def _describe_failure(failed_run: "EndedRun") -> str:
    if failed_run.cause == "user":
        name = f"the run of {failed_run.select or 'everything'}"
    else:
        kind, _, cause_name = failed_run.cause.partition("/")
        name = f"{kind} `{cause_name}`"
    branch_text = "" if failed_run.branch == "main" else f" on `{failed_run.branch}`"
    if not failed_run.failed_tables:
        return f"{name} failed{branch_text}: {(failed_run.error or {}).get('what') or 'the cause is unknown'}"
    table, error = failed_run.failed_tables[0]
    other_count = len(failed_run.failed_tables) - 1
    others = f", and {plural(other_count, 'more table')}" if other_count else ""
    what = str(error.get("what") or "the cause is unknown").removeprefix(f"task `{table}`: ")
    return f"{name} failed{branch_text}: `{table}`: {what}{others}"
