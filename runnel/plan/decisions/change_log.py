"""Decide the step of a table with a change log: apply the log, reuse an existing version, or skip it.

Pure. The log is a separate source, whose step is decided before.
"""

import hashlib
from dataclasses import replace

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Source, log_table_of
from runnel.model.table_version import TableVersion
from runnel.plan import reasons
from runnel.plan.facts import Facts
from runnel.plan.steps import PlanStep

_RULES_VERSION = "1"  # increase it to apply every log again from scratch


def compute_content_id(source: Source, log: str) -> str:
    """Return the content id of a table, computed from the content id `log` of its change log and how it is applied."""
    changes = source.origin
    assert isinstance(changes, Changes)
    apply_options = (
        _RULES_VERSION,
        changes.key,
        changes.sequence_by,
        changes.delete_when,
        changes.scd,
        source.partition,
    )
    return "changes:" + hashlib.sha256(repr((apply_options, log)).encode()).hexdigest()[:40]


def decide_change_log(source: Source, log: TableVersion | None, log_reason: str | None, facts: Facts) -> PlanStep:
    """Return the step of a table, given the future version of its log; None if that is unknown before it is read.

    `log_reason` describes the rows that the log gets, if any.
    """
    table, head = source.table, facts.head(source.table)
    content = compute_content_id(source, log.content) if log is not None else None
    if head is not None and content == head.content:
        step = PlanStep(table, "skip", reasons.UNCHANGED, head=head)
    elif content is not None and (existing_version := facts.find_version(table, content)) is not None:
        step = PlanStep(table, "reuse", f"{log_reason or reasons.REAPPLIED}, already applied", head=existing_version)
    else:
        reason = log_reason or (reasons.NOT_YET if head is None else reasons.REAPPLIED)
        step = PlanStep(table, "ingest", reason, head=TableVersion("", content) if content is not None else None)
    return replace(step, needs=(log_table_of(table),), is_expected=log_reason is not None)
