"""Take in what a feed has into its table, or a version that has the same rows already."""

from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_of
from runnel.phase_timer import phase
from runnel.plan.facts import Head
from runnel.plan.reasons import NOTHING_NEW
from runnel.run.results.run_result import Done, Event
from runnel.run.retry import attempt
from runnel.run.sources.file_source import warnings

if TYPE_CHECKING:
    from runnel.connect.feed.protocol import News
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work

_RETRIES = 2


def take_in(work: "Work", step: "Step") -> Done:
    """Read what is new of a source that is no files, and stage its table's next version."""
    news = work.facts.news(step.table)
    if news is None or news.is_empty:
        return Done(step.table, "skip", "skipped", step.reason)
    work.tell(Event("start", step.reason, step.table, "ingest"))

    def again(number: int, pause: float, error: BaseException) -> None:
        text = f"attempt {number} failed ({str(error).splitlines()[0][:200]}); again in {pause:.0f} s"
        work.tell(Event("retry", text, step.table, "ingest"))

    return attempt(lambda: _taken(work, step, news), _RETRIES, work.cancelled, again)


@phase("read")
def _taken(work: "Work", step: "Step", news: "News") -> Done:
    from runnel.connect.feed.ingest_feed import take
    from runnel.connect.feed.state import state_of
    from runnel.connect.feed_registry import feed_of

    source = work.flow.sources[step.table]
    before = state_of(work.facts.seen(step.table))
    feed = feed_of(source, work.root, spark=lambda: work.borrow().session, store=work.store)
    assert feed is not None
    head, aside = work.heads.get(step.table), work.heads.get(quarantine_of(step.table))
    made = take(
        work.store,
        source,
        feed,
        before,
        news,
        head.location if head else None,
        head.content if head else None,
        aside.location if aside else None,
        work.order.run,
        work.reading(step.table),
    )
    is_same = head is not None and (made.location == head.location or made.content == head.content)
    if is_same and state_of({one.path: one for one in made.seen}) == before:
        return Done(step.table, "skip", "skipped", NOTHING_NEW)
    return Done(
        step.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=made.rows,
        head=head if is_same else Head(made.location, made.content),
        aside=Head(*made.quarantine) if made.quarantine else None,
        set_aside=made.dropped,
        seen=made.seen,
        detail={"run": work.order.run},
        warnings=(*warnings(made.dropped, made.new_columns, bool(made.quarantine)), *made.warnings),
    )
