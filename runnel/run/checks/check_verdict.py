"""Decide from check findings whether a run fails or only warns. Pure."""

from collections.abc import Sequence

from runnel.declare.model.flow import Task
from runnel.errors import RunnelError, plural
from runnel.run.checks.row_checks import CheckFinding


def judge_findings(task: Task, findings: Sequence[CheckFinding]) -> tuple[str, ...]:
    """Return the warnings; if a check stops the run, raise CHECK_FAILED with every check that failed."""
    failed = [finding for finding in findings if finding.failed]
    stopping = [finding for finding in failed if finding.check.on_fail == "stop"]
    if not stopping:
        return tuple(describe_finding(finding) for finding in failed if finding.check.on_fail == "warn")
    lines = [f"task `{task.table}`: {plural(len(stopping), 'check')} failed"]
    lines += [f"    {describe_finding(finding)}{_describe_location(finding)}" for finding in failed]
    location = next((finding.check.place for finding in stopping if finding.check.place), task.place)
    raise RunnelError("CHECK_FAILED", "\n".join(lines), at=str(location), fix=_advise(task, stopping))


def _advise(task: Task, stopping: Sequence[CheckFinding]) -> str:
    """Return what to do about the checks that stop a run; rows that are too old are rarely a mistake of the task."""
    if all(finding.check.kind == "fresh" for finding in stopping):
        selections = " ".join(f"-s +{table}" for table in task.input_tables or (task.table,))
        look = f"`runnel plan {selections}` shows whether its sources have delivered anything new"
        return f'{look}; on_fail="warn" only warns'
    if any(finding.check.is_row_check for finding in stopping):
        return 'correct the task or its input; on_fail="quarantine" sets such rows aside, on_fail="warn" only warns'
    return 'correct the task or its input; on_fail="warn" only warns'


def describe_finding(finding: CheckFinding) -> str:
    """Return a failed check as a line.

    >>> from runnel.declare.model.flow import Check
    >>> describe_finding(CheckFinding(Check("unique", "unique(id)"), 1, "id 17 twice"))
    'unique(id): 1 value more than once, such as id 17 twice'
    """
    check, count = finding.check, finding.failed
    if check.kind in ("row_count", "fresh"):
        return f"{check.text}: {finding.example}"
    noun = "value" if check.kind == "unique" else "row"
    verb = {"unique": "more than once", "references": "without it"}.get(check.kind, "failed")
    example = f", such as {finding.example}" if finding.example else ""
    return f"{check.text}: {plural(count, noun)} {verb}{example}"


def _describe_location(finding: CheckFinding) -> str:
    return f" ({finding.check.place})" if finding.check.place else ""
