"""What to do for one source: read what is new, put a known version in place, or leave it.

Pure: the facts say what the source has.
"""

from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Source
from runnel.plan import reasons
from runnel.plan.facts import Arrivals, Facts, Head
from runnel.plan.missing_inputs import no_files
from runnel.plan.steps import Step


def decide_source(source: Source, facts: Facts) -> tuple[Step, Arrivals]:
    """Return the step of a source with what arrives for it.

    A source that has nothing to read and never had is a mistake; a manual one may be empty.
    """
    table, head = source.table, facts.head(source.table)
    if isinstance(source.origin, Manual):
        reason = reasons.BY_HAND if head is not None else f"{reasons.BY_HAND}; nothing in it yet"
        return Step(table, "skip", reason, head=head), Arrivals()
    arrivals = facts.arrivals(table)
    if not arrivals.is_empty:
        return _arriving(source, arrivals, head), arrivals
    if arrivals.renamed and head is not None:
        return Step(table, "ingest", reasons.renamed(arrivals.renamed), head=head), arrivals
    if (arrivals.problem or arrivals.left) and head is None:
        raise no_files(source, arrivals)
    nothing = reasons.NO_NEW_FILES if isinstance(source.origin, Files) else reasons.NOTHING_NEW
    reason = f"{arrivals.problem}; its rows stay" if arrivals.problem else nothing
    return Step(table, "skip", _and_left(reason, arrivals), head=head), arrivals


def _arriving(source: Source, arrivals: Arrivals, head: Head | None) -> Step:
    told = _and_left(reasons.arrived(arrivals), arrivals)
    if arrivals.known is None:
        predicted = Head("", arrivals.content) if arrivals.content is not None else None
        return Step(source.table, "ingest", told, head=predicted, bytes=arrivals.bytes)
    same = head is not None and head.content == arrivals.known.content
    why = "with what it holds already" if same else "known from before"
    return Step(source.table, "reuse", f"{told}, {why}", head=arrivals.known)


def _and_left(reason: str, arrivals: Arrivals) -> str:
    return f"{reason}; {reasons.writing(arrivals.left)}" if arrivals.left else reason
