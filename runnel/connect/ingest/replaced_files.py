"""Find the data files whose rows go: those that were recorded, else those whose names tell where they came from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from runnel.connect.ingest.detect.file_changes import Found, Position
from runnel.errors import RunnelError
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.data_file_owners import name_of, prefix_of
from runnel.lake.iceberg.manifests import Entry, entries_in, manifests

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
    listed = [m for m in manifests(store, table_metadata.load(store, base)) if m.content == ManifestContent.DATA]
    total = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in listed)
    wanted = {name_of(file) for old in found.replaced for file in old.files}
    live: dict[str, Entry] = {}
    for manifest in listed:
        live.update((name_of(entry.path), entry) for entry in entries_in(store, manifest))
        if wanted <= live.keys() and all(_is_plain(old) for old in found.replaced):
            break
    chosen: dict[str, Entry] = {}
    identities: list[str] = []
    is_exact, known = True, cache(seen)
    for old in found.replaced:
        files, exact = _of(old, live, found, known)
        chosen |= files
        is_exact &= exact
        is_blank = found.content is not None and not old.files and not old.is_gone  # counts, though it has no rows
        if exact and (files or is_blank):
            identities.append(old.identity)
    return Leaving(tuple(chosen.values()), tuple(identities), is_exact, len(chosen) == total)


def _of(old: Seen, live: Mapping[str, Entry], found: Found, seen: Position) -> tuple[dict[str, Entry], bool]:
    """Return the live files with the rows of a file, and whether it is certain which of its readings they are."""
    names = [name_of(file) for file in old.files]
    if _is_plain(old) and all(name in live for name in names):
        return {name: live[name] for name in names}, True
    prefixes = set(old.owned)
    others = _others(old, seen().values())
    files = {name: entry for name, entry in live.items() if prefix_of(name) in prefixes and name not in others}
    if files:
        return files, files.keys() == set(names)
    if names and not old.is_gone and any(prefix_of(name) is None for name in live):
        raise _rewritten(old)
    # A content that counts its rows, though they are not there, is that of other files with equal rows.
    return {}, found.content is None or not names or old.is_gone


def _is_plain(old: Seen) -> bool:
    """Tell whether no other rows are a file's if those are there that were recorded: it inherited none of another."""
    return bool(old.files) and (old.owners is None or len(old.owners) == 1)


def _others(old: Seen, seen: Iterable[Seen]) -> frozenset[str]:
    """Return the data files of other files: a renamed one's still have the name of its old path."""
    return frozenset(
        name_of(file) for other in seen if other.path != old.path and not other.is_gone for file in other.files
    )


def _rewritten(old: Seen) -> RunnelError:
    what = f"the rows of {old.path} that were read before can't be told from others: the table's files were rewritten"
    fix = "revert the commit that rewrote the table's files, and run again"
    return RunnelError("SOURCE_ROWS_REWRITTEN", what, at=old.path, fix=fix)
