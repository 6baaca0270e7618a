"""Send rows that were set aside through their source again, as they are or corrected. Publishes one commit.

Rows that pass go to the table, as rows of the file that they came from: when that changes, they go with its others.
Rows that are still bad stay aside, with what is wrong now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.file_patterns import File, file_at, format_of
from runnel.connect.ingest.batch_reader import Batch, read_batch
from runnel.connect.load import quarantine
from runnel.connect.load.quarantine import Aside
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source, quarantine_of
from runnel.errors import Mistake, Moved
from runnel.lake.diff.content_id import of_files
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.flow_state.ingest_positions import position
from runnel.lake.history.commits import Change, Commit, Version, sequence
from runnel.lake.iceberg.data_file_owners import name_of, prefix, prefix_of
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish

if TYPE_CHECKING:
    from runnel.lake.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True)
class Released:
    """How many rows were sent through again, how many the table got, and how many are still bad."""

    rows: int
    taken: int
    bad: int
    commit: Commit | None


def release(
    store: "Store",
    source: Source,
    root: Path,
    chosen: Sequence[Aside],
    corrected: Path | None = None,
    *,
    branch: str = "main",
) -> Released:
    """Send the `chosen` rows through again, or in their place those of the file `corrected`."""
    with temp_dirs.folder("release") as folder, pinned(store.db, "write") as pin:
        files, read = _files(source, root, chosen, corrected, Path(folder))
        for attempt in range(_ATTEMPTS):
            try:
                return _released(store, read, files, chosen, branch, pin)
            except Moved:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError("unreachable")


def _released(
    store: "Store", source: Source, files: Sequence[File], chosen: Sequence[Aside], branch: str, pin: str
) -> Released:
    planned, commit = store.db.read(sequence), store.commit(branch)
    state, aside = store.state(branch), quarantine_of(source.table)
    now, held = state.get(source.table), state[aside]
    owners = {row.file: row.owner or prefix(row.file) for row in chosen if row.file is not None}
    batch = read_batch(
        store, source, files, now.location if now else None, "release", None, is_anew=now is None, owners=owners
    )
    rows = sum(file.record_count for made in batch.made.values() for file in made)
    after = quarantine.without(store, held.location, chosen, batch.asides, owners)
    changes = [Change(aside, held.location, after, after)] if after != held.location else []
    if rows:
        changes.append(_table_change(store, source, batch, now))
    if not changes or (not rows and batch.dropped == len(chosen)):
        return Released(len(chosen), 0, batch.dropped, None)
    message = f"release {rows:,} row{'' if rows == 1 else 's'} of {source.table}"
    seen = store.db.read(lambda connection: position(connection, commit, source.table)) if rows else {}
    live = _data_files(store, now) if rows else ()
    draft = Draft(
        branch,
        message,
        store.author,
        tuple(changes),
        kind="release",
        head=commit.id,
        planned=planned,
        pin=pin,
        seen=tuple((source.table, entry) for entry in _position(seen, batch, owners, live)),
    )
    return Released(len(chosen), rows, batch.dropped, publish(store.db, draft))


def _table_change(store: "Store", source: Source, batch: Batch, now: Version | None) -> Change:
    added = [file for files in batch.made.values() for file in files]
    target = batch.target
    location = stage(store, target.location, Edit(added=added, updates=target.updates))
    names = sorted(file.file_path.rpartition("/")[2] for file in added)
    content = of_files(now.content if now else None, [f"released:{name}" for name in names])
    return Change(source.table, now.location if now else None, location, content)


def _data_files(store: "Store", version: Version | None) -> tuple[str, ...]:
    return (
        tuple(entry.path for entry in entries(store, load(store, version.location)) if entry.is_data) if version else ()
    )


def _position(
    now: Mapping[str, Seen], batch: Batch, owners: Mapping[str, str], live: Sequence[str]
) -> tuple[Seen, ...]:
    """Return what is recorded of files whose rows are in more data files now, by the names that they have by now.

    `live` are the data files that the table had. After a revert those of a file are of an earlier reading of it.
    """
    by_owner = {owner: entry for entry in now.values() for owner in entry.owned}
    more = {by_owner[owners[path]].path: made for path, made in batch.made.items() if owners.get(path) in by_owner}
    return tuple(
        replace(
            now[path],
            files=(*_held(now, path, live), *(file.file_path for file in made)),
            owners=now[path].owned,
        )
        for path, made in more.items()
    )


def _held(now: Mapping[str, Seen], path: str, live: Sequence[str]) -> list[str]:
    """Return the data files that hold rows of a file: those that were recorded, and those that bear its name."""
    others = {
        name_of(file) for other in now.values() if other.path != path and not other.is_gone for file in other.files
    }
    recorded, owned = {name_of(file) for file in now[path].files}, now[path].owned
    own = [file for file in live if name_of(file) in recorded or prefix_of(file) in owned]
    return [file for file in own if name_of(file) not in others]


def _files(
    source: Source, root: Path, chosen: Sequence[Aside], corrected: Path | None, folder: Path
) -> tuple[list[File], Source]:
    """Return the files to read, called as those that the rows came from, and how to read them."""
    for name in {row.file for row in chosen}:
        if len({row.owner for row in chosen if row.file == name}) > 1:
            what = f"several files were called {name} when their rows were set aside, and have other names by now"
            raise Mistake("RELEASE_FILES", what, fix="correct the rows in the files themselves, and run again")
    if corrected is None:
        return _as_they_are(source, root, chosen, folder)
    names = {row.file for row in chosen}
    if len(names) > 1:
        what = f"the rows come from {len(names):,} files, and corrected ones would belong to none of them"
        raise Mistake("RELEASE_FILES", what, fix="release them file by file: --file NAME")
    if not corrected.is_file():
        raise Mistake("RELEASE_NO_FILE", f"there is no file {corrected}", fix="name the file with the corrected rows")
    form = format_of([file_at(str(corrected), corrected)])
    return [file_at(names.pop() or str(source.table), corrected)], _reading(source, form)


def _as_they_are(source: Source, root: Path, chosen: Sequence[Aside], folder: Path) -> tuple[list[File], Source]:
    origin = source.origin
    is_csv = isinstance(origin, Files) and origin.format == "csv"
    groups: dict[str, list[str]] = {}
    for row in chosen:
        groups.setdefault(row.file or str(source.table), []).append(row.raw or "")
    files = []
    for number, (name, lines) in enumerate(groups.items()):
        path = folder / f"{number}.{'csv' if is_csv else 'jsonl'}"
        first = [_header(source, root / name)] if is_csv else []
        path.write_text("\n".join([*first, *lines]) + "\n")
        files.append(file_at(name, path))
    return files, _reading(source, "csv" if is_csv else "jsonl")


def _header(source: Source, path: Path) -> str:
    """Return the header of a file of CSV, or as the source declares it where the file is gone or has none."""
    origin = source.origin
    assert isinstance(origin, Files)
    options = dict(origin.options)
    if options.get("header", "true") == "true" and path.is_file() and not path.name.endswith(".gz"):
        with path.open(encoding=options.get("encoding", "utf-8-sig"), newline="") as file:
            return file.readline().rstrip("\r\n")
    delimiter = options.get("delimiter") or ("\t" if ".tsv" in path.name else ",")
    return delimiter.join(column.name for column in origin.schema or ())


def _reading(source: Source, form: str) -> Source:
    options = tuple(
        (name, value)
        for name, value in (source.origin.options if isinstance(source.origin, Files) else ())
        if form == "csv" and name not in ("header", "encoding")
    )
    read = Files(str(source.table), form, source.origin.schema, options=options)  # type: ignore[arg-type]
    return replace(source, origin=read, on_bad="quarantine")
