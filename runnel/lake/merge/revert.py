"""Revert a commit with a new one that points at the old contents; history is never rewritten.

A table that was not changed since returns to its previous version. One that was changed since keeps those changes, if
they don't overlap with what is undone. The position of a source is not changed. After a merge was reverted, merging
the same commits again changes nothing: revert the revert instead.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Conflict, Mistake
from runnel.lake import failpoints
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.adopt import adopt_outside_changes
from runnel.lake.history.ancestry import is_ancestor, read_ancestor_sequences
from runnel.lake.history.branches import get_branch
from runnel.lake.history.commits import (
    Commit,
    CommitChange,
    find_commit,
    find_version,
    read_changes,
    read_history,
    read_sequence,
    walk_lines,
)
from runnel.lake.history.refs import check_retained, read_head
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.merge.revert_sources import RevertPositions
    from runnel.lake.store import Store


class RevertConflict(Conflict):
    """Later commits changed tables in ways that can't be combined with the revert."""

    def __init__(self, commit: Commit, branch: str, conflicts: "list[tuple[_Undo, str]]") -> None:
        reasons = "; ".join(
            f"`{undo.table}` ({_format_commits(undo.later_commits)}): {reason}" for undo, reason in conflicts[:5]
        )
        more = f"; and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        super().__init__(
            "REVERT_CONFLICT",
            f"commit {commit.id[:8]} can't be reverted on branch `{branch}`, because of later ones: {reasons}{more}",
            fix="revert the later commits first, newest first",
        )
        self.tables = tuple((undo.table, reason) for undo, reason in conflicts)
        self.later = {undo.table: undo.later_commits for undo, _ in conflicts}


@dataclass(frozen=True)
class _Undo:
    """One table of the commit: its versions before it, after it and now, and the later commits that changed it."""

    table: TableName
    before: TableVersion | None
    after: TableVersion | None
    current: TableVersion | None
    later_commits: tuple[Commit, ...]
    positions: "RevertPositions | None" = None  # positions of the file source that fills the table
    has_source: bool = False  # a source fills the table

    @property
    def is_untouched(self) -> bool:
        """Return whether the table still has the content that the commit gave it, and the same source files."""
        has_same_files = self.current == self.after or self.positions is None or self.positions.is_unchanged
        return has_same_files and _content_of(self.current) == _content_of(self.after)


@dataclass(frozen=True)
class _Revert:
    """The commit to revert on a branch; `staged` has the locations of versions that earlier attempts staged."""

    store: "Store"
    commit: Commit
    branch: str
    staged: dict[tuple[object, ...], str] = field(default_factory=dict)


def revert_commit(store: "Store", commit: str, branch: str = "main", message: str | None = None) -> Commit:
    """Undo what a commit changed, as a new commit on `branch`, whose history must contain it."""
    undone = store.commit(commit)
    parent = store.db.read(lambda connection: _check_revertible(connection, undone, branch))
    adopt_outside_changes(store.db, branch)
    revert = _Revert(store, undone, branch)

    with (
        acquire_pin(store.db, "write") as pin,
        acquire_pin(store.db, "read", parent.id),
        acquire_pin(store.db, "read", undone.id),
    ):

        def make_draft() -> CommitDraft:
            planned = store.db.read(read_sequence)
            undos = _read_undos(store, undone, parent, branch)
            changes = _build_changes(revert, undos)
            if not changes:
                what = f"there is nothing to revert: all changes of commit {undone.id[:8]} are already undone"
                raise Mistake("REVERT_NOTHING", what, fix=f"`runnel show {undone.id[:8]}` lists its changes")
            failpoints.reach(failpoints.REVERT_STAGED)
            changed_tables = {change.table for change in changes}
            required_versions = tuple(
                (undo.table, undo.current.location if undo.current else None)
                for undo in undos
                if undo.table not in changed_tables
            )
            text = message or f"revert {undone.id[:8]}: {undone.message}"
            return CommitDraft(
                branch,
                text,
                store.author,
                changes,
                kind="revert",
                required_versions=required_versions,
                planned_sequence=planned,
                pin=pin,
                processed_files=_collect_inherited_files(store, undos, changes),
            )

        return publish_with_retry(store.db, make_draft)


def _check_revertible(connection: Connection, commit: Commit, name: str) -> Commit:
    """Return the commit's parent; raise unless the commit can be reverted on the branch."""
    get_branch(connection, name)
    tip = read_head(connection, name)
    if not any(line == commit.line and commit.seq <= seq for line, seq in walk_lines(connection, tip.line, tip.seq)):
        raise _not_on_branch_error(connection, commit, tip, name)
    parent = find_commit(connection, commit.parent) if commit.parent else None
    if parent is None:
        raise Mistake("REVERT_ROOT", f"commit {commit.id[:8]} is the lake's first; there is nothing before it")
    check_retained(commit)
    if commit.kind == "rewind":
        what = f"commit {commit.id[:8]} rewound a source; reverting it would duplicate its rows"
        raise Mistake("REVERT_REWIND", what, fix=f"runnel rewind SOURCE --to {parent.id[:8]} moves it forward again")
    if parent.expired_at:
        what = f"commit {commit.id[:8]} can't be reverted: the contents before it are gone, their retention ended"
        raise Mistake("REVERT_EXPIRED", what, fix="change the table by hand; a tag keeps a commit for ever")
    return parent


def _not_on_branch_error(connection: Connection, commit: Commit, tip: Commit, name: str) -> Mistake:
    what = f"commit {commit.id[:8]} of branch `{commit.branch}` is not on branch `{name}`"
    fix = f"`runnel log --at {name}` lists its commits"
    if is_ancestor(read_ancestor_sequences(connection, tip), commit):
        merge = _find_merge_of(connection, commit, tip)
        what += f"; it came with merge {merge.id[:8]}" if merge else ""
        fix = f"revert the whole merge: runnel revert {merge.id[:8]}" if merge else fix
    return Mistake("REVERT_ELSEWHERE", what, fix=fix)


def _find_merge_of(connection: Connection, commit: Commit, tip: Commit) -> Commit | None:
    """Return the oldest merge on a branch that contains a commit."""
    merges = [
        candidate for candidate in read_history(connection, tip) if candidate.merged and candidate.seq > commit.seq
    ]
    return next(
        (merge for merge in reversed(merges) if is_ancestor(read_ancestor_sequences(connection, merge), commit)), None
    )


def _collect_inherited_files(
    store: "Store", undos: list[_Undo], changes: tuple[CommitChange, ...]
) -> tuple[tuple[TableName, ProcessedFile], ...]:
    """Return the source positions to record for rows that return, including quarantined ones."""
    from runnel.lake.merge.revert_sources import list_returning_owners

    positions_by_table = {undo.table: undo.positions for undo in undos if undo.positions is not None}
    returning_owners: dict[TableName, set[str]] = {}
    for change in changes:
        if (positions := positions_by_table.get(change.table)) is not None:
            returning_owners.setdefault(positions.source, set()).update(
                list_returning_owners(store, change.before, change.after)
            )
    by_source = {positions.source: positions for positions in positions_by_table.values()}
    return tuple(
        (source, processed_file)
        for source, owners in returning_owners.items()
        for processed_file in by_source[source].find_inherited_files(owners)
    )


def _read_undos(store: "Store", commit: Commit, parent: Commit, name: str) -> list[_Undo]:
    return store.db.read(lambda connection: _read_undos_in_transaction(connection, store, commit, parent, name))


def _read_undos_in_transaction(
    connection: Connection, store: "Store", commit: Commit, parent: Commit, name: str
) -> list[_Undo]:
    from runnel.lake.merge.revert_sources import find_source_table, read_source_positions

    tip = read_head(connection, name)
    undos = []
    for change in read_changes(connection, commit.id):
        table = change.table
        before, after, current = (find_version(connection, at_commit, table) for at_commit in (parent, commit, tip))
        later_commits = _list_later_commits(connection, tip, commit, table) if current != after else ()
        positions = read_source_positions(
            connection, find_source_table(store, table, (current, after, before)), parent, commit, tip
        )
        undos.append(
            _Undo(table, before, after, current, later_commits, positions, has_ingested(connection, tip, table))
        )
    return undos


def _list_later_commits(connection: Connection, tip: Commit, commit: Commit, table: TableName) -> tuple[Commit, ...]:
    return tuple(
        later_commit
        for later_commit in read_history(connection, tip, table=table, limit=20)
        if later_commit.seq > commit.seq
    )


def _build_changes(revert: _Revert, undos: list[_Undo]) -> tuple[CommitChange, ...]:
    from runnel.lake.iceberg.table_definition import IncompatibleChanges

    changes, clashes = [], []
    for undo in undos:
        try:
            change = _build_change(revert, undo)
            if (
                change is not None
                and undo.positions is not None
                and (path := undo.positions.find_file_read_since(revert.store))
            ):
                raise IncompatibleChanges(f"{path} was read again since, or its rows were released or taken back")
        except IncompatibleChanges as clash:
            clashes.append((undo, clash.reason))
        else:
            changes += [change] if change else []
    if clashes:
        raise RevertConflict(revert.commit, revert.branch, clashes)
    return tuple(changes)


def _build_change(revert: _Revert, undo: _Undo) -> CommitChange | None:
    from runnel.lake.iceberg.table_definition import IncompatibleChanges

    current, before, after = undo.current, _find_previous_version(revert, undo), undo.after
    detail, current_location = {"reverts": revert.commit.id}, current.location if current else None
    if _content_of(current) == _content_of(before):
        return None
    if undo.is_untouched:
        return CommitChange(
            undo.table, current_location, before.location if before else None, _content_of(before), detail
        )
    if current is None:
        raise IncompatibleChanges("it was dropped")
    if before is None:
        raise IncompatibleChanges("this commit created it, and a revert would also drop later changes")
    if after is None:
        raise IncompatibleChanges("this commit dropped it, and it was created again later")
    location = _stage_without_commit(revert, undo, (before, after, current))
    return CommitChange(undo.table, current_location, location, None, detail) if location else None


def _find_previous_version(revert: _Revert, undo: _Undo) -> TableVersion | None:
    """Return the version a table returns to; a source's table is emptied instead of dropped, like its position."""
    if undo.before is not None or undo.after is None or not undo.has_source:
        return undo.before
    from runnel.lake.merge.revert_sources import stage_empty_version

    key, staged = ("emptied", undo.after.location), revert.staged
    if key not in staged:
        staged[key] = stage_empty_version(revert.store, undo.after).location
    return undo.after if staged[key] == undo.after.location else TableVersion(staged[key], staged[key])


def _stage_without_commit(
    revert: _Revert, undo: _Undo, versions: tuple[TableVersion, TableVersion, TableVersion]
) -> str | None:
    """Stage the current version without the commit's change; None if nothing of that change is left."""
    from runnel.lake.merge.merge_plan import combine_changes, read_table_history
    from runnel.lake.merge.three_way import MergeSide

    before, after, current = versions
    store, name, staged = revert.store, revert.branch, revert.staged
    tip = store.db.read(lambda connection: read_head(connection, name))
    ours = MergeSide(
        f"branch {name}", current.location, partial(read_table_history, store, revert.commit, after, tip, undo.table)
    )
    paths = undo.positions.paths if undo.positions else None
    edit = combine_changes(
        store, after.location, ours, MergeSide("the commit", before.location), undo=True, paths=paths
    )
    if edit.is_empty:
        return None
    if edit.result not in staged:  # the same for every attempt to publish
        staged[edit.result] = edit.stage(store)
    return staged[edit.result]


def _content_of(version: TableVersion | None) -> str | None:
    return version.content if version else None


def _format_commits(commits: tuple[Commit, ...]) -> str:
    short_ids = ", ".join(commit.id[:8] for commit in commits[:3])
    return short_ids + (f" and {len(commits) - 3} more" if len(commits) > 3 else "")
