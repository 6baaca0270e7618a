"""Turn what the steps of a run made into one commit."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_of
from runnel.lake.history.commits import Change, Commit
from runnel.lake.publish import Draft, publish
from runnel.plan.facts import Head

if TYPE_CHECKING:
    from runnel.names import TableName
    from runnel.run.results.run_result import Done
    from runnel.run.run_context import Work


def changes_of(work: "Work", steps: "Iterable[Done]") -> tuple[Change, ...]:
    """Return how the tables differ from where the run started, rows set aside included."""
    found: list[Change | None] = []
    for step in steps:
        if step.state == "succeeded":
            found += [_change(work, step.table, step.head, step.detail), _aside(work, step)]
    return tuple(sorted((change for change in found if change is not None), key=lambda change: change.table))


def _aside(work: "Work", step: "Done") -> Change | None:
    """Return how a quarantine table differs; a known result without one takes the table's own away."""
    table, detail = quarantine_of(step.table), {"of": str(step.table)}
    was = work.order.state.get(table)
    if step.aside is None and step.action == "reuse" and step.table in work.flow.tasks and was is not None:
        return Change(table, was.location, None, None, detail)
    return _change(work, table, step.aside, detail)


def _change(work: "Work", table: "TableName", head: Head | None, detail: Mapping[str, object]) -> Change | None:
    was = work.order.state.get(table)
    if head is None or (was is not None and (was.location, was.content) == (head.location, head.content)):
        return None
    return Change(table, was.location if was else None, head.location, head.content, detail)


def publish_run(work: "Work", steps: "tuple[Done, ...]", message: str | None) -> Commit | None:
    """Publish a run as one commit; None where nothing changed."""
    changes = changes_of(work, steps)
    made = [step for step in steps if step.state == "succeeded"]
    seen = tuple((step.table, seen) for step in made for seen in step.seen)
    if not changes and not seen:
        return None
    draft = Draft(
        work.order.branch,
        message or message_of(made),
        work.store.author,
        changes,
        kind="run",
        run=work.order.run,
        planned=work.order.planned,
        pin=work.order.pin,
        slot=work.loan.slot.lease if work.loan else None,
        seen=seen,
        claim=work.order.claim,
    )
    return publish(work.store.db, draft)


def message_of(made: "Iterable[Done]") -> str:
    """Return what a commit says when the user said nothing."""
    names = [str(step.table) for step in made]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"run {', '.join(names[:3])}{more}"
