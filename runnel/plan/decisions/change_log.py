"""What to do for a table that follows from a log of changes: apply them, put a known version in place, or leave it.

Pure. The log is a source of its own and is decided before.
"""

import hashlib
from dataclasses import replace

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Source, log_of
from runnel.plan import reasons
from runnel.plan.facts import Facts, Head
from runnel.plan.steps import Step

_RULES = "1"  # of applying; another number applies every log anew


def content_of(source: Source, log: str) -> str:
    """Return the content of a table that follows from a log with the content `log`, and from how it is applied."""
    changes = source.origin
    assert isinstance(changes, Changes)
    how = (_RULES, changes.key, changes.sequence_by, changes.delete_when, changes.scd, source.partition)
    return "changes:" + hashlib.sha256(repr((how, log)).encode()).hexdigest()[:40]


def decide_changes(source: Source, log: Head | None, why: str | None, facts: Facts) -> Step:
    """Return the step of a table, given its log as it will be; None where that is not known before it is read.

    `why` says what the log gets, where it gets something.
    """
    table, head = source.table, facts.head(source.table)
    content = content_of(source, log.content) if log is not None else None
    if head is not None and content == head.content:
        step = Step(table, "skip", reasons.UNCHANGED, head=head)
    elif content is not None and (known := facts.known(table, content)) is not None:
        step = Step(table, "reuse", f"{why or reasons.REAPPLIED}, known from before", head=known)
    else:
        told = why or (reasons.NOT_YET if head is None else reasons.REAPPLIED)
        step = Step(table, "ingest", told, head=Head("", content) if content is not None else None)
    return replace(step, needs=(log_of(table),), is_expected=why is not None)
