"""Take in what a feed has: fetched into files, read as any files are, staged as one version with the new state."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.feed import failpoints
from runnel.connect.feed.protocol import Comparing, Feed, Fetched, News, Progress, State
from runnel.connect.feed.state import content_after, seen_of
from runnel.connect.feed.target_comparison import Holding
from runnel.connect.feed.upsert import Displaced, displaced
from runnel.connect.files.file_patterns import file_at
from runnel.connect.ingest.batch_reader import Batch, read_batch, target_of
from runnel.connect.ingest.ingest import Ingested
from runnel.connect.ingest.source_errors import told
from runnel.connect.load import quarantine
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.snapshots import Edit, stage

if TYPE_CHECKING:
    from runnel.lake.store import Store


def take(
    store: "Store",
    source: Source,
    feed: Feed,
    state: State | None,
    news: News,
    base: str | None,
    content: str | None,
    aside: str | None,
    run: str,
    progress: Progress,
) -> Ingested:
    """Stage the next version of a source's table; `base` and `content` are those of the version now.

    Raises where rows are bad, by the source's `on_bad`; then nothing is to be published.
    """
    with temp_dirs.folder("feed") as folder:
        held = Holding(store, base)
        if isinstance(feed, Comparing):
            feed.compare(held)
        fetched = feed.fetch(state, news, Path(folder), progress)
        failpoints.reach(failpoints.FETCHED)
        with told(source):
            batch = _read(store, source, fetched, base, run, progress)
        failpoints.reach(failpoints.READ)
        location = _staged(store, batch, fetched, base, held)
    failpoints.reach(failpoints.STAGED)
    return Ingested(
        location=location,
        content=content_after(content, "replace" if fetched.is_all else fetched.mode, fetched.identity),
        rows=sum(file.record_count for files in batch.made.values() for file in files),
        files=len(fetched.parts),
        seen=(seen_of(fetched.state, fetched.identity),),
        dropped=batch.dropped + len(fetched.bad),
        quarantine=_quarantined(store, source, batch, fetched, aside, run),
        new_columns=batch.new_columns,
        warnings=fetched.warnings,
        oldest_at=fetched.oldest_at,
    )


def _read(store: "Store", source: Source, fetched: Fetched, base: str | None, run: str, progress: Progress) -> Batch:
    """Read all parts, by the policy of the source."""
    filled = [part for part in fetched.parts if part.path.stat().st_size]
    is_anew = base is None
    files = [file_at(part.name, part.path) for part in filled]
    form = filled[0].format if filled else "jsonl"
    read = replace(source, origin=Files(str(source.table), form, source.origin.schema))
    if not filled:
        return Batch(target_of(store, read, (), base, is_anew=is_anew))
    return read_batch(store, read, files, base, run, progress, is_anew=is_anew, together=True)


def _staged(store: "Store", batch: Batch, fetched: Fetched, base: str | None, held: Holding) -> str:
    added = [file for files in batch.made.values() for file in files]
    target = batch.target
    if base is None or target.location != base:
        return stage(store, target.location, Edit(added=added)) if added else target.location
    if fetched.mode == "replace":
        removed = list(entries(store, table_metadata.load(store, base)))
        return stage(store, base, Edit(added, removed, updates=target.updates))
    taken = Displaced()
    if fetched.mode == "upsert":
        is_all = fetched.gone is None and not fetched.present
        places = held.places(sum(file.record_count for file in added)) if is_all else None
        taken = displaced(store, base, target.metadata, added, fetched.key, fetched.gone, fetched.present, places)
    if not (added or taken.removed or taken.added or target.updates):
        return base
    return stage(store, base, Edit([*added, *taken.added], taken.removed, updates=target.updates))


def _quarantined(
    store: "Store", source: Source, batch: Batch, fetched: Fetched, aside: str | None, run: str
) -> tuple[str, str] | None:
    """Set bad rows aside. One that is read once more is there already, and one that all rows lack now goes."""
    bad = (replace(row, run=row.run or run) for row in fetched.bad)
    found = (*batch.asides, *bad) if source.on_bad == "quarantine" else ()
    is_again = aside is not None and fetched.mode != "append"
    held = quarantine.rows(store, table_metadata.load(store, aside)) if aside is not None and is_again else []
    known, now = {_what(row) for row in held}, {_what(row) for row in found}
    more = [row for row in found if _what(row) not in known]
    is_all = fetched.mode == "replace" or fetched.is_all
    gone = [row for row in held if is_all and _what(row) not in now]
    if not more and not gone:
        return None
    base = aside or quarantine.create(store, source.table)
    location = quarantine.without(store, base, gone, more) if gone else quarantine.append(store, base, more)
    return location, location


def _what(row: quarantine.Aside) -> tuple[str | None, ...]:
    """Return what makes a row that was set aside the same as another, whenever it was."""
    return row.raw, row.reason, row.file
