"""Find the data files whose rows go: those that were recorded, else those whose names tell where they came from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from runnel.connect.ingest.found import Found, Position
from runnel.connect.owners import name_of, prefix, prefix_of
from runnel.errors import RunnelError
from runnel.lake import tables
from runnel.lake.ingested import Seen
from runnel.lake.manifests import Entry, entries_in, manifests

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Leaving:
    """Files of a version whose rows go. `identities` are what these rows are; not `is_exact` where that is unsure."""

    entries: tuple[Entry, ...] = ()
    identities: tuple[str, ...] = ()
    is_exact: bool = True
    is_everything: bool = False  # no other data file is left


def leaving(store: "Store", base: str | None, found: Found, seen: Position) -> Leaving:
    """Return the files that a version has of what was found replaced or gone; after a revert it may have none."""
    if base is None or not found.replaced:
        return Leaving()
    listed = [m for m in manifests(store, tables.load(store, base)) if m.content == ManifestContent.DATA]
    total = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in listed)
    wanted = {name_of(file) for old in found.replaced for file in old.files}
    live: dict[str, Entry] = {}
    for manifest in listed:
        live.update((name_of(entry.path), entry) for entry in entries_in(store, manifest))
        if wanted <= live.keys() and all(old.files for old in found.replaced):
            break
    chosen: dict[str, Entry] = {}
    identities: list[str] = []
    is_exact, known = True, cache(seen)
    for old in found.replaced:
        files, exact = _of(old, live, found, known)
        chosen |= files
        is_exact &= exact
        if exact and (files or not (old.files or old.is_gone)):
            identities.append(old.identity)
    return Leaving(tuple(chosen.values()), tuple(identities), is_exact, len(chosen) == total)


def _of(old: Seen, live: Mapping[str, Entry], found: Found, seen: Position) -> tuple[dict[str, Entry], bool]:
    """Return the live files with the rows of a file, and whether they are the ones that were recorded."""
    names = [name_of(file) for file in old.files]
    if names and all(name in live for name in names):
        return {name: live[name] for name in names}, True
    prefixes = {prefix(old.path), *(known for file in old.files if (known := prefix_of(file)))}
    others = _others(old, seen().values())
    files = {name: entry for name, entry in live.items() if prefix_of(name) in prefixes and name not in others}
    if files:
        return files, False
    rewritten = found.content is not None or any(prefix_of(name) is None for name in live)
    if names and not old.is_gone and rewritten:
        raise _rewritten(old)
    return {}, True


def _others(old: Seen, seen: Iterable[Seen]) -> frozenset[str]:
    """Return the data files of other files: a renamed one's still have the name of its old path."""
    return frozenset(
        name_of(file) for other in seen if other.path != old.path and not other.is_gone for file in other.files
    )


def _rewritten(old: Seen) -> RunnelError:
    what = f"the rows of {old.path} that were read before can't be told from others: the table's files were rewritten"
    fix = "revert the commit that rewrote the table's files, and run again"
    return RunnelError("SOURCE_ROWS_REWRITTEN", what, at=old.path, fix=fix)
