"""Read what is new of a source into its table, or take a version that has the same contents already."""

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Files, Manual
from runnel.declare.model.flow import quarantine_of
from runnel.phase_timer import phase
from runnel.plan.facts import Head
from runnel.plan.reasons import writing
from runnel.run.results.run_result import Done, Event

if TYPE_CHECKING:
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work


_MOST_TOLD = 5


def ingest(work: "Work", step: "Step") -> Done:
    """Read the new and changed files of a source, and stage its table's next version."""
    source = work.flow.sources[step.table]
    if isinstance(source.origin, Changes):
        from runnel.run.sources.change_log import apply_changes

        return apply_changes(work, source, step)
    if not isinstance(source.origin, Files | Manual):
        from runnel.run.sources.feed_source import take_in

        return take_in(work, step)
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


@phase("read")
def _read(work: "Work", step: "Step", found: "Found") -> Done:
    from runnel.connect.ingest.ingest import read

    head, aside = work.heads.get(step.table), work.heads.get(quarantine_of(step.table))
    made = read(
        work.store,
        work.flow.sources[step.table],
        work.root,
        found,
        head.location if head else None,
        lambda: work.facts.position(step.table),
        quarantine=aside.location if aside else None,
        run=work.order.run,
        progress=work.reading(step.table),
    )
    told = warnings(made.dropped, made.new_columns, bool(made.quarantine))
    if head is not None and made.location == head.location:
        return Done(step.table, "skip", "skipped", writing(made.left))
    return Done(
        step.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=made.rows,
        head=Head(made.location, made.content),
        aside=Head(*made.quarantine) if made.quarantine else None,
        set_aside=made.dropped + len(made.unread),
        seen=made.seen,
        detail={"run": work.order.run, "files": made.files},
        warnings=(*told, *_skipped(made.unread, bool(made.quarantine)), *filter(None, [writing(made.left)])),
    )


def _skipped(unread: tuple[str, ...], is_aside: bool) -> tuple[str, ...]:
    """Return what is to be told about files that can't be read, the first few."""
    rest = len(unread) - _MOST_TOLD
    word = "set aside" if is_aside else "skipped"
    more = (f"and {rest:,} more files were {word}",) if rest > 0 else ()
    return (*(f"a file was {word}: {why}" for why in unread[:_MOST_TOLD]), *more)


def warnings(dropped: int, new_columns: tuple[str, ...], is_aside: bool) -> tuple[str, ...]:
    """Return what is to be told about rows and columns that came."""
    found = []
    if dropped and not is_aside:
        found.append(f"{dropped:,} bad rows were dropped")
    if new_columns:
        found.append(f"new columns: {', '.join(new_columns)}")
    return tuple(found)


def _position_in(work: "Work", step: "Step", found: "Found") -> "tuple[Seen, ...] | None":
    """Return the position that goes with a known version: which of its data files hold each file's rows.

    None where that can't be said of every file and of every data file; then the files are read. Only data files that
    were written for a file under its own name are taken for it: those of another file with equal contents are the
    other's, whatever becomes of it.
    """
    from runnel.lake.flow_state.ingest_positions import once_read
    from runnel.lake.iceberg.data_file_owners import prefix_of
    from runnel.lake.iceberg.manifests import entries
    from runnel.lake.iceberg.table_metadata import load

    assert step.head is not None
    left = {entry.path for entry in entries(work.store, load(work.store, step.head.location))}
    known = work.facts.position(step.table)
    moved = {seen.path: seen for seen in found.position({})}
    unread = {arrival.path for arrival in found.reads}
    changed: list[Seen] = []
    for path, seen in (known | moved).items():
        if seen.is_gone:
            changed += [seen] if path in moved else []
            continue
        if path not in unread and left.issuperset(seen.files):
            choices = [seen.files]
        else:
            choices = once_read(work.store.db, step.table, seen.identity)
        own = (files for files in choices if all(prefix_of(file) in seen.owned for file in files))
        files = next((files for files in own if left.issuperset(files)), None)
        if files is None:
            return None
        left.difference_update(files)
        changed += [replace(seen, files=files)] if path in moved or files != seen.files else []
    return tuple(changed) if not left else None
