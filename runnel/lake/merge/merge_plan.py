"""Decide, table by table, how one branch is merged into another. Reads only; `merge` carries it out.

The decision starts from the newest commit that both branches have behind them. Branches that were merged crosswise
have several; then each is tried, and they must agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Broken, Mistake
from runnel.lake.diff.equal_tables import has_equal_rows
from runnel.lake.diff.lake_diff import versions_apart
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.history.adopt import adopt
from runnel.lake.history.ancestry import contains, lineage, merge_base, merge_bases
from runnel.lake.history.branches import branch
from runnel.lake.history.commits import Commit, Version, version_at
from runnel.lake.history.refs import head
from runnel.lake.iceberg import table_properties
from runnel.lake.merge.merge_feeds import is_fed, only_runs, theirs_is_further
from runnel.lake.merge.merge_sources import sources
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.merge.merge_file_tables import FileReplay
    from runnel.lake.merge.merge_sources import Sources
    from runnel.lake.merge.three_way import Replay, Side, Step
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Decision:
    """What a merge does to one table.

    `action` is "take" (their version as it is), "drop", "replay" (their change brought to our version), "same"
    (nothing to do), "compute" (made by a task on both sides: it is computed again) or "conflict".
    """

    table: TableName
    action: str
    reason: str
    ours: Version | None = field(default=None, repr=False)
    theirs: Version | None = field(default=None, repr=False)
    replay: "Replay | FileReplay | None" = field(default=None, repr=False)
    seen: tuple[Seen, ...] = field(default=(), repr=False)  # what the source of the table has given on their side
    content: str | None = field(default=None, repr=False)  # of a replayed version, where it can be said
    is_agreed: bool = field(default=False, repr=False)  # both sides came to the same, each by itself

    @property
    def changes(self) -> bool:
        """Tell whether the merge's commit changes the table."""
        return self.action in ("take", "drop", "replay", "compute")

    @property
    def result(self) -> tuple[object, ...]:
        """Return what two decisions share if they come to the same."""
        return (self.action, self.replay.result if self.replay else None)


@dataclass(frozen=True)
class MergePlan:
    """What a merge would do: the heads of both branches, where they last agreed, and a decision for each table."""

    into: str
    target: Commit
    source: Commit
    bases: tuple[Commit, ...]
    steps: tuple[Decision, ...]

    @property
    def base(self) -> Commit:
        """Return the newest commit that both branches have behind them."""
        return self.bases[0]

    def having(self, *actions: str) -> tuple[Decision, ...]:
        """Return the decisions with one of these actions."""
        return tuple(step for step in self.steps if step.action in actions)


@dataclass(frozen=True)
class _Facts:
    """What the database says about a merge, read in one transaction."""

    target: Commit
    source: Commit
    bases: tuple[Commit, ...]
    tables: "dict[TableName, _Versions]"


@dataclass(frozen=True)
class _Versions:
    """One table on both sides, and the versions that they may have started from, with their commits."""

    ours: Version | None
    theirs: Version | None
    bases: tuple[tuple[Commit, Version | None], ...]


def plan_merge(store: "Store", source: str, into: str = "main") -> MergePlan:
    """Return what merging the branch `source` into the branch `into` would do, with its conflicts."""
    if source == into:
        raise Mistake("MERGE_SELF", f"branch `{into}` can't be merged into itself", fix="name another branch")
    store.db.read(lambda connection: (branch(connection, into), branch(connection, source)))
    adopt(store.db, into)
    adopt(store.db, source)
    facts = store.db.read(lambda connection: _facts(connection, source, into))
    steps = tuple(_agreed(store, facts, table, versions, (into, source)) for table, versions in facts.tables.items())
    return MergePlan(into, facts.target, facts.source, facts.bases, steps)


def _facts(connection: Connection, source: str, into: str) -> _Facts:
    target, taken = head(connection, into), head(connection, source)
    if contains(lineage(connection).reach((target.line, target.seq)), taken):
        return _Facts(target, taken, (taken,), {})
    bases = tuple(merge_bases(connection, target, taken))
    changed = {table for base in bases for table in versions_apart(connection, base, taken)}
    return _Facts(
        target, taken, bases, {table: _versions(connection, target, taken, bases, table) for table in sorted(changed)}
    )


def _versions(
    connection: Connection, target: Commit, source: Commit, bases: Sequence[Commit], table: TableName
) -> _Versions:
    found = [(base, version_at(connection, base, table)) for base in bases]
    if len({_content(version) for _, version in found}) > 1:
        # A base that has the table as all bases once had it has nothing to say about it.
        oldest = bases[0]
        for base in bases[1:]:
            oldest = merge_base(connection, oldest, base)
        unchanged = _content(version_at(connection, oldest, table))
        found = [(base, version) for base, version in found if _content(version) != unchanged]
    distinct = {_content(version): (base, version) for base, version in reversed(found)}
    return _Versions(
        version_at(connection, target, table), version_at(connection, source, table), tuple(distinct.values())
    )


def _content(version: Version | None) -> str | None:
    return version.content if version else None


def _agreed(store: "Store", facts: _Facts, table: TableName, versions: _Versions, names: tuple[str, str]) -> Decision:
    made = [_decide(store, facts, table, versions, base, names) for base in versions.bases]
    if len({decision.result for decision in made}) > 1:
        reason = "the branches were merged crosswise, and it is not clear what each has changed since"
        return Decision(table, "conflict", reason, versions.ours, versions.theirs)
    return made[0]


def _decide(
    store: "Store",
    facts: _Facts,
    table: TableName,
    versions: _Versions,
    base: tuple[Commit, Version | None],
    names: tuple[str, str],
) -> Decision:
    into, source = names
    was, ours, theirs = base[1], versions.ours, versions.theirs
    made = partial(Decision, table, ours=ours, theirs=theirs)
    if _content(ours) == _content(theirs):
        return made("same", f"{into} has it already", is_agreed=True)
    if _content(theirs) == _content(was):
        return made("same", f"unchanged on {source}")
    read = sources(store, base[0], facts.target, facts.source, table)
    if renamed := read.renamed_apart():
        return made("conflict", renamed)
    if _content(ours) == _content(was):
        if theirs is None:
            return made("drop", f"dropped on {source}, unchanged on {into}")
        reason = f"created on {source}" if was is None else f"unchanged on {into}"
        return made("take", reason, seen=read.taken(whole=True))
    if ours is None or theirs is None:
        gone, kept = (into, source) if ours is None else (source, into)
        return made("conflict", f"dropped on {gone}, changed on {kept}")
    if is_fed(read) and all(only_runs(store, base[0], tip, table) for tip in (facts.target, facts.source)):
        if theirs_is_further(store, read, (facts.target, facts.source), table):
            return made("take", f"{source} has read more of its source", seen=read.taken(whole=True))
        return made("same", f"{into} has read as much of its source; the next run reads on", is_agreed=True)
    quarantined = _quarantined_files(store, facts, base[0], table, (ours, theirs))
    if was is None:
        if quarantined is not None and _are_same(store, theirs, quarantined):
            return made("same", f"{into} has set aside the same rows", is_agreed=True)
        if _made_by_task(store, ours, theirs):
            return made("compute", f"made by a task, on both {into} and {source}")
        if not _has_source(read) and has_equal_rows(store, ours, theirs):
            return made("same", f"created on both {into} and {source} with the same rows", is_agreed=True)
        return made("conflict", f"created on both {into} and {source}")
    if not _has_source(read) and not _made_by_task(store, ours, theirs):
        # The tables were created on both sides once, with the same rows: each stands for the other.
        if has_equal_rows(store, ours, was):
            return made("take", f"unchanged on {into}")
        if has_equal_rows(store, theirs, was):
            return made("same", f"unchanged on {source}")
    return _combine(store, facts, made, base[0], was, ours, theirs, names, read, quarantined)


def _quarantined_files(
    store: "Store", facts: _Facts, base: Commit, table: TableName, versions: tuple[Version, Version]
) -> "Sources | None":
    """Return what both sides have read of the files whose bad rows a quarantine table has; None for another table."""
    from runnel.lake.merge.revert_sources import source_of

    source = source_of(store, table, versions)
    return sources(store, base, facts.target, facts.source, source) if source != table else None


def _are_same(store: "Store", theirs: Version, read: "Sources") -> bool:
    """Tell whether each bad row on their side is of a file that our side has read with the same contents."""
    from runnel.lake.iceberg.data_file_owners import prefix_of
    from runnel.lake.iceberg.manifests import entries
    from runnel.lake.iceberg.table_metadata import load

    paths, same = read.paths, read.same
    live = entries(store, load(store, theirs.location))
    return all(paths.get(prefix_of(entry.path) or "") in same for entry in live)


def _has_source(read: "Sources") -> bool:
    """Tell whether a source fills the table on some side: its position says what the rows are."""
    return bool(read.ours or read.theirs or read.base)


def _combine(
    store: "Store",
    facts: _Facts,
    made: "partial[Decision]",
    base: Commit,
    was: Version,
    ours: Version,
    theirs: Version,
    names: tuple[str, str],
    read: "Sources",
    quarantined: "Sources | None",
) -> Decision:
    from runnel.lake.iceberg.table_definition import Clash
    from runnel.lake.merge.three_way import Side

    table: TableName = made.args[0]
    sides = [
        Side(name, version.location, partial(history_of, store, base, was, commit, table))
        for name, version, commit in zip(names, (ours, theirs), (facts.target, facts.source), strict=True)
    ]
    try:
        if _made_by_task(store, ours, theirs):
            return made("compute", f"made by a task, and changed on both {names[0]} and {names[1]}")
        found = combine(store, was.location, *sides, read=quarantined or read)
    except Clash as clash:
        return made("conflict", clash.reason)
    except Broken:
        if base.expired_at is None:
            raise
        return made("conflict", f"what both started from is gone: retention of commit {base.id[:8]} ended")
    if found.is_empty and found.onto == ours.location:
        return made("same", f"{names[0]} has it already", is_agreed=True)
    onto_theirs = found.onto != ours.location
    return made(
        "replay",
        f"changed on both {names[0]} and {names[1]}, apart from each other",
        replay=found,
        seen=read.taken(whole=onto_theirs),
        content=None if onto_theirs else read.content(ours.content, theirs.content),
    )


def combine(
    store: "Store",
    base: str,
    ours: "Side",
    theirs: "Side",
    *,
    undo: bool = False,
    read: "Sources | None" = None,
    paths: "Mapping[str, str] | None" = None,
) -> "Replay | FileReplay":
    """Return how to bring a change of any kind of table from one side to the other, or raise Clash; see `replay`."""
    from runnel.lake.iceberg.table_metadata import load
    from runnel.lake.iceberg.table_properties import is_file_table
    from runnel.lake.merge.merge_file_tables import replay_files
    from runnel.lake.merge.three_way import replay

    if is_file_table(load(store, base)):
        return replay_files(store, base, ours, theirs)
    return replay(store, base, ours, theirs, undo=undo, read=read, paths=paths)


def history_of(store: "Store", base: Commit, was: Version, tip: Commit, table: TableName) -> "tuple[Step, ...]":
    """Return what happened to a table since a commit, change by change."""
    from runnel.lake.merge.table_history import steps_between

    return store.db.read(lambda connection: steps_between(connection, lineage(connection), base, was, tip, table))


def _made_by_task(store: "Store", *versions: Version) -> bool:
    from runnel.lake.iceberg.table_metadata import load

    return any(load(store, version.location).properties.get(table_properties.MADE_BY) == "task" for version in versions)
