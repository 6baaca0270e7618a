"""Undo a commit with a new one that points at the old contents; history is never rewritten.

A table that nobody changed since goes back to the version before. One that was changed since keeps those changes,
where they don't touch what is undone. The position of a source stays as it is. After a merge was reverted, merging the
same commits again brings nothing: revert the revert.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Conflict, Mistake
from runnel.lake import failpoints
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.adopt import adopt
from runnel.lake.history.ancestry import contains, reach
from runnel.lake.history.branches import branch
from runnel.lake.history.commits import Change, Commit, Version, changes_of, find, history, path, sequence, version_at
from runnel.lake.history.refs import head, readable
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish_again
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.merge.revert_sources import ReadFiles
    from runnel.lake.store import Store


class RevertConflict(Conflict):
    """Tables that later commits changed in ways that can't be kept."""

    def __init__(self, commit: Commit, branch: str, found: "list[tuple[_Undo, str]]") -> None:
        told = "; ".join(f"`{undo.table}` ({_named(undo.later)}): {reason}" for undo, reason in found[:5])
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        super().__init__(
            "REVERT_CONFLICT",
            f"commit {commit.id[:8]} can't be reverted on branch `{branch}`, because of later ones: {told}{more}",
            fix="revert the later commits first, newest first",
        )
        self.tables = tuple((undo.table, reason) for undo, reason in found)
        self.later = {undo.table: undo.later for undo, _ in found}


@dataclass(frozen=True)
class _Undo:
    """One table of the commit: its versions before and after it, and now, and who changed it since."""

    table: TableName
    before: Version | None
    after: Version | None
    now: Version | None
    later: tuple[Commit, ...]
    files: "ReadFiles | None" = None  # of a source, what was read of its files
    is_fed: bool = False  # a source fills the table

    @property
    def is_untouched(self) -> bool:
        """Tell whether the table is what the commit made it, and each of its rows of the file that it was of."""
        same = self.now == self.after or self.files is None or self.files.is_same
        return same and _content(self.now) == _content(self.after)


def revert(store: "Store", commit: str, branch: str = "main", message: str | None = None) -> Commit:
    """Undo what a commit changed, as a new commit on `branch`, which must have it behind it."""
    undone = store.commit(commit)
    parent = store.db.read(lambda connection: _check(connection, undone, branch))
    adopt(store.db, branch)
    staged: dict[tuple[object, ...], str] = {}

    with (
        pinned(store.db, "write") as pin,
        pinned(store.db, "read", parent.id),
        pinned(store.db, "read", undone.id),
    ):

        def draft() -> Draft:
            planned = store.db.read(sequence)
            found = _undos(store, undone, parent, branch)
            changes = _changes(store, undone, branch, found, staged)
            if not changes:
                what = f"there is nothing to revert: what commit {undone.id[:8]} changed is as it was before"
                raise Mistake("REVERT_NOTHING", what, fix=f"`runnel show {undone.id[:8]}` lists its changes")
            failpoints.reach(failpoints.REVERT_STAGED)
            kept = {change.table for change in changes}
            relied_on = tuple((u.table, u.now.location if u.now else None) for u in found if u.table not in kept)
            text = message or f"revert {undone.id[:8]}: {undone.message}"
            return Draft(
                branch,
                text,
                store.author,
                changes,
                kind="revert",
                unmoved=relied_on,
                planned=planned,
                pin=pin,
                seen=_inherited(store, found, changes),
            )

        return publish_again(store.db, draft)


def _check(connection: Connection, commit: Commit, name: str) -> Commit:
    """Return the commit's parent, having made sure that both can be used."""
    branch(connection, name)
    tip = head(connection, name)
    if not any(line == commit.line and commit.seq <= seq for line, seq in path(connection, tip.line, tip.seq)):
        raise _elsewhere(connection, commit, tip, name)
    parent = find(connection, commit.parent) if commit.parent else None
    if parent is None:
        raise Mistake("REVERT_ROOT", f"commit {commit.id[:8]} is the lake's first; there is nothing before it")
    readable(commit)
    if commit.kind == "rewind":
        what = f"commit {commit.id[:8]} took a source back to be read again; reverting it would have its rows twice"
        raise Mistake("REVERT_REWIND", what, fix=f"runnel rewind SOURCE --to {parent.id[:8]} takes it forward again")
    if parent.expired_at:
        what = f"commit {commit.id[:8]} can't be reverted: the contents before it are gone, their retention ended"
        raise Mistake("REVERT_EXPIRED", what, fix="change the table by hand; a tag keeps a commit for ever")
    return parent


def _elsewhere(connection: Connection, commit: Commit, tip: Commit, name: str) -> Mistake:
    what = f"commit {commit.id[:8]} of branch `{commit.branch}` is not on branch `{name}`"
    fix = f"`runnel log --at {name}` lists its commits"
    if contains(reach(connection, tip), commit):
        taken = _taken_in(connection, commit, tip)
        what += f"; it came with merge {taken.id[:8]}" if taken else ""
        fix = f"revert that merge, which undoes it whole: runnel revert {taken.id[:8]}" if taken else fix
    return Mistake("REVERT_ELSEWHERE", what, fix=fix)


def _taken_in(connection: Connection, commit: Commit, tip: Commit) -> Commit | None:
    """Return the oldest merge of a branch that brought a commit in."""
    merges = [found for found in history(connection, tip) if found.merged and found.seq > commit.seq]
    return next((merge for merge in reversed(merges) if contains(reach(connection, merge), commit)), None)


def _inherited(store: "Store", undos: list[_Undo], changes: tuple[Change, ...]) -> tuple[tuple[TableName, Seen], ...]:
    """Return what is recorded of sources whose rows come back, those in quarantine too."""
    from runnel.lake.merge.revert_sources import owners_back

    files = {undo.table: undo.files for undo in undos if undo.files is not None}
    back: dict[TableName, set[str]] = {}
    for change in changes:
        if (read := files.get(change.table)) is not None:
            back.setdefault(read.source, set()).update(owners_back(store, change.before, change.after))
    by_source = {read.source: read for read in files.values()}
    return tuple((source, seen) for source, owners in back.items() for seen in by_source[source].inherited(owners))


def _undos(store: "Store", commit: Commit, parent: Commit, name: str) -> list[_Undo]:
    return store.db.read(lambda connection: _undos_in(connection, store, commit, parent, name))


def _undos_in(connection: Connection, store: "Store", commit: Commit, parent: Commit, name: str) -> list[_Undo]:
    from runnel.lake.merge.revert_sources import read_files, source_of

    tip = head(connection, name)
    found = []
    for change in changes_of(connection, commit.id):
        table = change.table
        before, after, now = (version_at(connection, at, table) for at in (parent, commit, tip))
        later = _later(connection, tip, commit, table) if now != after else ()
        files = read_files(connection, source_of(store, table, (now, after, before)), parent, commit, tip)
        found.append(_Undo(table, before, after, now, later, files, has_ingested(connection, tip, table)))
    return found


def _later(connection: Connection, tip: Commit, commit: Commit, table: TableName) -> tuple[Commit, ...]:
    return tuple(found for found in history(connection, tip, table=table, limit=20) if found.seq > commit.seq)


def _changes(
    store: "Store", commit: Commit, name: str, undos: list[_Undo], staged: dict[tuple[object, ...], str]
) -> tuple[Change, ...]:
    from runnel.lake.iceberg.table_definition import Clash

    changes, clashes = [], []
    for undo in undos:
        try:
            change = _change(store, commit, name, undo, staged)
            if change is not None and undo.files is not None and (path := undo.files.read_since(store)):
                raise Clash(f"{path} was read again since, or its rows were released or taken back")
        except Clash as clash:
            clashes.append((undo, clash.reason))
        else:
            changes += [change] if change else []
    if clashes:
        raise RevertConflict(commit, name, clashes)
    return tuple(changes)


def _change(
    store: "Store", commit: Commit, name: str, undo: _Undo, staged: dict[tuple[object, ...], str]
) -> Change | None:
    from runnel.lake.iceberg.table_definition import Clash

    now, before, after = undo.now, _before(store, undo, staged), undo.after
    detail, here = {"reverts": commit.id}, now.location if now else None
    if _content(now) == _content(before):
        return None
    if undo.is_untouched:
        return Change(undo.table, here, before.location if before else None, _content(before), detail)
    if now is None:
        raise Clash("it was dropped")
    if before is None:
        raise Clash("it was created by this commit, and would be dropped with what came later")
    if after is None:
        raise Clash("it was dropped by this commit, and created anew")
    location = _replayed(store, commit, name, undo, (before, after, now), staged)
    return Change(undo.table, here, location, None, detail) if location else None


def _before(store: "Store", undo: _Undo, staged: dict[tuple[object, ...], str]) -> Version | None:
    """Return what a table goes back to. One that a source fills stays, without rows: so does its position."""
    if undo.before is not None or undo.after is None or not undo.is_fed:
        return undo.before
    from runnel.lake.merge.revert_sources import emptied

    key = ("emptied", undo.after.location)
    if key not in staged:
        staged[key] = emptied(store, undo.after).location
    return undo.after if staged[key] == undo.after.location else Version(staged[key], staged[key])


def _replayed(
    store: "Store",
    commit: Commit,
    name: str,
    undo: _Undo,
    versions: tuple[Version, Version, Version],
    staged: dict[tuple[object, ...], str],
) -> str | None:
    """Stage what a table is now without what the commit did; None where there is nothing left of it."""
    from runnel.lake.merge.merge_plan import combine, history_of
    from runnel.lake.merge.three_way import Side

    before, after, now = versions
    tip = store.db.read(lambda connection: head(connection, name))
    ours = Side(f"branch {name}", now.location, partial(history_of, store, commit, after, tip, undo.table))
    paths = undo.files.paths if undo.files else None
    found = combine(store, after.location, ours, Side("the commit", before.location), undo=True, paths=paths)
    if found.is_empty:
        return None
    if found.result not in staged:  # the same for every attempt to publish
        staged[found.result] = found.stage(store)
    return staged[found.result]


def _content(version: Version | None) -> str | None:
    return version.content if version else None


def _named(commits: tuple[Commit, ...]) -> str:
    shown = ", ".join(commit.id[:8] for commit in commits[:3])
    return shown + (f" and {len(commits) - 3} more" if len(commits) > 3 else "")
