"""Take in what was found of a source: its files read together, written apart, staged as one version."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.file_patterns import AVRO, BINARY, ORC, PARQUET, File
from runnel.connect.files.open_files import is_blank
from runnel.connect.ingest import failpoints
from runnel.connect.ingest.batch_reader import Batch, read_batch, target_of
from runnel.connect.ingest.detect.file_changes import Arrival, Found, Position
from runnel.connect.ingest.detect.listing import is_address
from runnel.connect.ingest.detect.unchanged_check import changed, refused
from runnel.connect.ingest.ingest import Ingested, Progress
from runnel.connect.ingest.replaced_files import Leaving, leaving
from runnel.connect.load import quarantine
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError
from runnel.lake.diff.content_id import of_files
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.data_file_owners import prefix
from runnel.lake.iceberg.snapshots import Edit, stage

if TYPE_CHECKING:
    from runnel.lake.store import Store

_HEAD_BYTES = 4096
_ATTEMPTS = 3


def take_in(
    store: "Store",
    source: Source,
    root: Path,
    found: Found,
    base: str | None,
    seen: Position,
    aside: str | None,
    run: str,
    progress: Progress | None,
) -> Ingested:
    """Stage the next version of a source's table. Where all rows are read in another way, the table starts over.

    Without files that change under the reader, everything is read once more: what they said may have set a column's
    type.
    """
    for _ in range(_ATTEMPTS):
        gone = leaving(store, base, found, seen)
        is_anew = base is None or (found.is_reread and gone.is_everything)
        try:
            batch = _batch(store, source, root, found, base, run, progress, is_anew=is_anew)
            failpoints.reach(failpoints.READ)
        except RunnelError:
            moved = changed(root, found, store.storage)
            if not moved:
                raise
        else:
            moved = changed(root, found, store.storage)
            if not moved:
                return _ingested(store, source, found, base, batch, gone, aside, is_anew=is_anew)
        rest = found.without(moved)
        if base is None and rest.is_empty:
            break
        if rest.is_empty and base is not None:
            return Ingested(base, found.before or "", 0, 0, rest.moved, left=rest.left)
        found = rest
    raise refused(min(moved))


def _batch(
    store: "Store",
    source: Source,
    root: Path,
    found: Found,
    base: str | None,
    run: str,
    progress: Progress | None,
    *,
    is_anew: bool,
) -> Batch:
    skips = source.on_bad != "stop"
    with temp_dirs.folder("ingest") as folder:
        local = _files(store, root, found.reads, Path(folder), progress)
        files = _filled(source, local)
        if not files:
            return Batch(target_of(store, source, (), base, is_anew=is_anew))
        owners = {arrival.path: arrival.owned[0] for arrival in found.reads}
        return read_batch(store, source, files, base, run, progress, is_anew=is_anew, skips=skips, owners=owners)


def _ingested(
    store: "Store",
    source: Source,
    found: Found,
    base: str | None,
    batch: Batch,
    gone: Leaving,
    aside: str | None,
    *,
    is_anew: bool,
) -> Ingested:
    location = _staged(store, batch, gone, is_anew=is_anew)
    failpoints.reach(failpoints.STAGED)
    made = {path: tuple(file.file_path for file in files) for path, files in batch.made.items()}
    return Ingested(
        location=location,
        content=_content(store, found, base, batch, gone, location, is_anew=is_anew),
        rows=sum(file.record_count for files in batch.made.values() for file in files),
        files=len(found.reads),
        seen=found.position(made, batch.incomplete),
        dropped=batch.dropped,
        quarantine=_quarantined(store, source, found, batch, aside),
        new_columns=batch.new_columns,
        unread=batch.unread,
        left=found.left,
    )


def _filled(source: Source, files: Sequence[File]) -> list[File]:
    """Return the files that have something in them; an empty one gives no rows, unless files are rows themselves."""
    assert isinstance(source.origin, Files)
    if source.origin.format == BINARY:
        return list(files)
    filled = [file for file in files if file.bytes]
    if source.origin.format in (PARQUET, AVRO, ORC):
        return filled
    return [file for file in filled if file.bytes > _HEAD_BYTES or not is_blank(file)]


def _files(
    store: "Store", root: Path, arrivals: Sequence[Arrival], folder: Path, progress: Progress | None
) -> list[File]:
    """Return what is on local disk; objects are copied below `folder`."""
    away: dict[str, Path] = {}
    if wanted := {each.path: folder / prefix(each.path) for each in arrivals if is_address(each.path)}:
        from runnel.connect.ingest.detect.object_listing import download

        away = download(wanted, store.storage, progress)
    found = []
    for each in arrivals:
        # Its absolute path keeps the name of a symlink, and with it the ending.
        path = str(away.get(each.path) or os.path.abspath(root / each.path))  # noqa: PTH100
        found.append(File(each.path, path, each.size, each.modified_ns / 1e9))
    return found


def _staged(store: "Store", batch: Batch, gone: Leaving, *, is_anew: bool) -> str:
    added = [file for files in batch.made.values() for file in files]
    if is_anew:
        return stage(store, batch.target.location, Edit(added=added)) if added else batch.target.location
    return stage(store, batch.target.location, Edit(added, gone.entries, updates=batch.target.updates))


def _content(
    store: "Store", found: Found, base: str | None, batch: Batch, gone: Leaving, location: str, *, is_anew: bool
) -> str:
    """Return whose rows and columns these are. Where it can't be told what went, they are nobody else's.

    So it is where the content before was not the sum of the files that were read: rows may go that were released.
    """
    before = (
        table_metadata.load(store, base).properties.get(table_properties.UNDECLARED, "") if base is not None else ""
    )
    after = batch.target.undeclared
    came, went = ([after], [before]) if after != before else ([], [])
    added = [arrival.identity for arrival in found.reads]
    if is_anew:
        content, went = of_files(None, added), []
        came = [after]
    elif gone.is_exact and (found.content is not None or not found.replaced):
        content = of_files(found.before, added, gone.identities)
    else:
        return of_files(location, ())
    return of_files(content, filter(None, came), filter(None, went))


def _quarantined(
    store: "Store", source: Source, found: Found, batch: Batch, aside: str | None
) -> tuple[str, str] | None:
    """Stage the quarantine table with the bad rows, in the place of those of earlier readings of the same files."""
    if aside is None and not batch.asides:
        return None
    base = aside or quarantine.create(store, source.table)
    without = {owner for arrival in found.reads for owner in arrival.owned}
    without |= {owner for old in found.replaced for owner in old.owned}
    owners = {arrival.path: arrival.owned[0] for arrival in found.reads}
    location = quarantine.change(store, base, batch.asides, without if aside else (), owners)
    return (location, location) if location != aside else None
