"""Read what is new of a source into its table, or take a version that has the same contents already."""

from typing import TYPE_CHECKING

from runnel.declare.flow import Files, quarantine_of
from runnel.plan.facts import Head
from runnel.run.report import Done, Event

if TYPE_CHECKING:
    from runnel.connect.ingest import Found
    from runnel.lake.ingested import Seen
    from runnel.plan.steps import Step
    from runnel.run.work import Work


def ingest(work: "Work", step: "Step") -> Done:
    """Read the new and changed files of a source, and stage its table's next version."""
    source = work.flow.sources[step.table]
    found = work.facts.found(step.table)
    if found is not None and found.is_empty and found.renamed:
        # No row changes, but a later change of the file must find its rows.
        head = work.heads.get(step.table)
        return Done(step.table, "ingest", "succeeded", step.reason, rows=0, head=head, seen=found.moved)
    if found is None or found.is_empty or not isinstance(source.origin, Files):
        return Done(step.table, "skip", "skipped", step.reason)
    if step.action == "reuse" and step.head is not None:
        seen = _position_in(work, step, found)
        if seen is not None:
            return Done(step.table, "reuse", "succeeded", step.reason, head=step.head, seen=seen)
    work.tell(Event("start", step.reason, step.table, "ingest"))
    return _read(work, step, found)


def _read(work: "Work", step: "Step", found: "Found") -> Done:
    from runnel.connect.ingest import read

    def report(what: str, done: int, total: int | None) -> None:
        work.watch(Event("progress", what, step.table, "ingest", done, total))
        work.check()

    head, aside = work.heads.get(step.table), work.heads.get(quarantine_of(step.table))
    made = read(
        work.store,
        work.flow.sources[step.table],
        work.root,
        found,
        head.location if head else None,
        work.facts.seen(step.table),
        quarantine=aside.location if aside else None,
        run=work.order.run,
        progress=report,
    )
    return Done(
        step.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=made.rows,
        head=Head(made.location, made.content),
        aside=Head(*made.quarantine) if made.quarantine else None,
        set_aside=made.dropped,
        seen=made.seen,
        detail={"run": work.order.run, "files": made.files},
        warnings=_warnings(made.dropped, made.new_columns, bool(made.quarantine)),
    )


def _warnings(dropped: int, new_columns: tuple[str, ...], is_aside: bool) -> tuple[str, ...]:
    found = []
    if dropped and not is_aside:
        found.append(f"{dropped:,} bad rows were dropped")
    if new_columns:
        found.append(f"new columns: {', '.join(new_columns)}")
    return tuple(found)


def _position_in(work: "Work", step: "Step", found: "Found") -> "tuple[Seen, ...] | None":
    """Return the position that goes with a known version: which of its data files hold each file's rows.

    None where that can't be said; then the files are read.
    """
    from runnel.lake.ingested import once_read
    from runnel.lake.manifests import entries
    from runnel.lake.tables import load

    assert step.head is not None
    there = {entry.path for entry in entries(work.store, load(work.store, step.head.location))}
    files: dict[str, tuple[str, ...]] = {}
    for arrival in found.reads:
        for held in once_read(work.store.db, step.table, arrival.identity):
            if set(held) <= there:
                files[arrival.path] = held
                there -= set(held)
                break
        else:
            return None
    return found.position(files)
