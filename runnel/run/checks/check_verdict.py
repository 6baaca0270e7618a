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
    fix = 'correct the task or its input; on_fail="quarantine" sets such rows aside, on_fail="warn" only warns'
    if not any(finding.check.is_row_check for finding in stopping):
        fix = 'correct the task or its input; on_fail="warn" only warns'
    raise RunnelError("CHECK_FAILED", "\n".join(lines), at=str(location), fix=fix)


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
