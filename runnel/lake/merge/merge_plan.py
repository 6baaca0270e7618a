"""Decide for each table how to merge one branch into another. Reads only; `merge_branch` carries it out.

The decision starts from the merge base, the newest common ancestor of both branches. Branches that were merged
crosswise have several merge bases; then the decisions for all of them must agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import CorruptData, Mistake
from runnel.lake.diff.equal_tables import has_equal_rows
from runnel.lake.diff.lake_diff import find_differing_versions
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.history.adopt import adopt_outside_changes
from runnel.lake.history.ancestry import find_merge_base, find_merge_bases, is_ancestor, read_line_graph
from runnel.lake.history.branches import get_branch
from runnel.lake.history.commits import Commit, find_version
from runnel.lake.history.refs import read_head
from runnel.lake.iceberg import table_properties
from runnel.lake.merge.merge_feeds import has_theirs_read_further, is_changed_only_by_runs, is_fed_on_both_sides
from runnel.lake.merge.merge_quarantine import combine_created_quarantines, find_quarantine_owner, has_same_files
from runnel.lake.merge.merge_sources import read_three_way_positions
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.merge.merge_file_tables import FileReplay
    from runnel.lake.merge.merge_sources import ThreeWayPositions
    from runnel.lake.merge.three_way import MergeEdit, MergeSide, MergeStep
    from runnel.lake.store import Store


@dataclass(frozen=True)
class MergeDecision:
    """What a merge does to one table.

    `action` is "take" (use their version), "drop", "replay" (apply their change to our version), "same" (nothing to
    do), "compute" (a task made it on both sides: compute it again) or "conflict".
    """

    table: TableName
    action: str
    reason: str
    ours: TableVersion | None = field(default=None, repr=False)
    theirs: TableVersion | None = field(default=None, repr=False)
    replay: "MergeEdit | FileReplay | None" = field(default=None, repr=False)
    processed_files: tuple[ProcessedFile, ...] = field(default=(), repr=False)  # ingested on their side
    content: str | None = field(default=None, repr=False)  # of a replayed version, if it is known
    is_agreed: bool = field(default=False, repr=False)  # both sides reached the same content independently
    computed_with: TableName | None = field(default=None, repr=False)  # the table whose task sets aside these rows

    @property
    def changes_table(self) -> bool:
        """Return whether the merge's commit changes the table."""
        return self.action in ("take", "drop", "replay", "compute")

    @property
    def result(self) -> tuple[object, ...]:
        """Return a value that is equal for two decisions with the same result."""
        return (self.action, self.replay.result if self.replay else None)


@dataclass(frozen=True)
class MergePlan:
    """What a merge would do: the heads of both branches, their merge bases, and a decision for each table."""

    into: str
    target: Commit
    source: Commit
    bases: tuple[Commit, ...]
    steps: tuple[MergeDecision, ...]

    @property
    def base(self) -> Commit:
        """Return the newest common ancestor of both branches."""
        return self.bases[0]

    def with_action(self, *actions: str) -> tuple[MergeDecision, ...]:
        """Return the decisions with one of these actions."""
        return tuple(step for step in self.steps if step.action in actions)


@dataclass(frozen=True)
class _MergeFacts:
    """What a merge plan needs from the database, read in one transaction."""

    target: Commit
    source: Commit
    bases: tuple[Commit, ...]
    tables: "dict[TableName, _TableVersions]"


@dataclass(frozen=True)
class _TableVersions:
    """The versions of one table on both sides, and at each merge base, with that commit."""

    ours: TableVersion | None
    theirs: TableVersion | None
    bases: tuple[tuple[Commit, TableVersion | None], ...]


@dataclass(frozen=True)
class _MergeCase:
    """One table of a merge, seen from one merge base; `into` and `source` are the names of the branches."""

    store: "Store"
    facts: _MergeFacts
    table: TableName
    base: Commit
    base_version: TableVersion | None
    ours: TableVersion | None
    theirs: TableVersion | None
    into: str
    source: str

    def decide(
        self,
        action: str,
        reason: str,
        *,
        is_agreed: bool = False,
        processed_files: tuple[ProcessedFile, ...] = (),
    ) -> MergeDecision:
        """Return a decision about the table."""
        decision = MergeDecision(self.table, action, reason, self.ours, self.theirs)
        return replace(decision, is_agreed=is_agreed, processed_files=processed_files)

    def read_positions(self, source_table: TableName) -> "ThreeWayPositions":
        """Return how far both sides and the merge base have read the source of a table."""
        return read_three_way_positions(self.store, self.base, self.facts.target, self.facts.source, source_table)


def plan_merge(store: "Store", source: str, into: str = "main") -> MergePlan:
    """Return what merging the branch `source` into the branch `into` would do, with its conflicts."""
    if source == into:
        raise Mistake("MERGE_SELF", f"branch `{into}` can't be merged into itself", fix="name another branch")
    store.db.read(lambda connection: (get_branch(connection, into), get_branch(connection, source)))
    adopt_outside_changes(store.db, into)
    adopt_outside_changes(store.db, source)
    facts = store.db.read(lambda connection: _read_facts(connection, source, into))
    steps = tuple(
        _decide_for_all_bases(
            [
                _MergeCase(store, facts, table, base, base_version, versions.ours, versions.theirs, into, source)
                for base, base_version in versions.bases
            ],
        )
        for table, versions in facts.tables.items()
    )
    return MergePlan(into, facts.target, facts.source, facts.bases, steps)


def _read_facts(connection: Connection, source: str, into: str) -> _MergeFacts:
    target, source_head = read_head(connection, into), read_head(connection, source)
    if is_ancestor(read_line_graph(connection).ancestor_sequences((target.line, target.seq)), source_head):
        return _MergeFacts(target, source_head, (source_head,), {})
    bases = tuple(find_merge_bases(connection, target, source_head))
    changed = {table for base in bases for table in find_differing_versions(connection, base, source_head)}
    return _MergeFacts(
        target,
        source_head,
        bases,
        {table: _read_versions(connection, target, source_head, bases, table) for table in sorted(changed)},
    )


def _read_versions(
    connection: Connection, target: Commit, source: Commit, bases: Sequence[Commit], table: TableName
) -> _TableVersions:
    base_versions = [(base, find_version(connection, base, table)) for base in bases]
    if len({_content_of(version) for _, version in base_versions}) > 1:
        # A base that has the same version as the common ancestor of all bases tells nothing about the table.
        common_base = bases[0]
        for base in bases[1:]:
            common_base = find_merge_base(connection, common_base, base)
        unchanged = _content_of(find_version(connection, common_base, table))
        base_versions = [(base, version) for base, version in base_versions if _content_of(version) != unchanged]
    distinct = {_content_of(version): (base, version) for base, version in reversed(base_versions)}
    return _TableVersions(
        find_version(connection, target, table), find_version(connection, source, table), tuple(distinct.values())
    )


def _content_of(version: TableVersion | None) -> str | None:
    return version.content if version else None


def _decide_for_all_bases(cases: Sequence[_MergeCase]) -> MergeDecision:
    decisions = [_decide_for_base(case) for case in cases]
    if len({decision.result for decision in decisions}) > 1:
        return cases[0].decide(
            "conflict", "the branches were merged crosswise, and it is not clear what each has changed since"
        )
    return decisions[0]


def _decide_for_base(case: _MergeCase) -> MergeDecision:
    store, table, decide = case.store, case.table, case.decide
    into, source = case.into, case.source
    base_version, ours, theirs = case.base_version, case.ours, case.theirs
    if _content_of(ours) == _content_of(theirs):
        return decide("same", f"{into} has it already", is_agreed=True)
    if _content_of(theirs) == _content_of(base_version):
        return decide("same", f"unchanged on {source}")
    positions = case.read_positions(table)
    if rename_conflict := positions.describe_rename_conflict():
        return decide("conflict", rename_conflict)
    if _content_of(ours) == _content_of(base_version):
        if theirs is None:
            return decide("drop", f"dropped on {source}, unchanged on {into}")
        reason = f"created on {source}" if base_version is None else f"unchanged on {into}"
        return decide("take", reason, processed_files=positions.gained_files(whole=True))
    owner = find_quarantine_owner(store, table, (ours, theirs))
    if owner is not None and _is_owner_made_by_task(case, owner):
        reason = f"the checks of {owner} set rows aside on both {into} and {source}"
        return replace(decide("compute", reason), computed_with=owner)
    if ours is None or theirs is None:
        dropped_on, changed_on = (into, source) if ours is None else (source, into)
        return decide("conflict", f"dropped on {dropped_on}, changed on {changed_on}")
    quarantined = case.read_positions(owner) if owner is not None else None
    if fed_decision := _decide_fed_table(case, owner or table, quarantined or positions):
        return fed_decision
    if base_version is None:
        if quarantined is not None and (quarantined.ours or quarantined.theirs):
            return _decide_created_quarantine(case, ours, theirs, quarantined)
        if _is_made_by_task(store, ours, theirs):
            return decide("compute", f"computed by a task, on both {into} and {source}")
        if not _has_source(positions) and has_equal_rows(store, ours, theirs):
            return decide("same", f"created on both {into} and {source} with the same rows", is_agreed=True)
        return decide("conflict", f"created on both {into} and {source}")
    if not _has_source(positions) and not _is_made_by_task(store, ours, theirs):
        # The table was created on both sides, with the same rows: the two versions are interchangeable.
        if has_equal_rows(store, ours, base_version):
            return decide("take", f"unchanged on {into}")
        if has_equal_rows(store, theirs, base_version):
            return decide("same", f"unchanged on {source}")
    return _decide_combination(case, (base_version, ours, theirs), positions, quarantined)


def _decide_fed_table(
    case: _MergeCase, source_table: TableName, positions: "ThreeWayPositions"
) -> MergeDecision | None:
    """Decide about a table that a feed fills, or its quarantine table, by how far both sides have read."""
    store, facts = case.store, case.facts
    if not is_fed_on_both_sides(positions) or not all(
        is_changed_only_by_runs(store, case.base, tip, table)
        for tip in (facts.target, facts.source)
        for table in {source_table, case.table}
    ):
        return None
    if has_theirs_read_further(store, positions, (facts.target, facts.source), source_table):
        gained_files = positions.gained_files(whole=True) if source_table == case.table else ()
        return case.decide("take", f"{case.source} has read more of its source", processed_files=gained_files)
    return case.decide(
        "same", f"{case.into} has read as much of its source; the next run reads the rest", is_agreed=True
    )


def _decide_created_quarantine(
    case: _MergeCase, ours: TableVersion, theirs: TableVersion, positions: "ThreeWayPositions"
) -> MergeDecision:
    """Decide about a quarantine table that a source of files created on both sides."""
    from runnel.lake.iceberg.table_definition import IncompatibleChanges

    if has_same_files(case.store, theirs, positions):
        return case.decide("same", f"{case.into} has set aside the same rows", is_agreed=True)
    try:
        edit = combine_created_quarantines(case.store, ours, theirs, positions)
    except IncompatibleChanges as clash:
        return case.decide("conflict", clash.reason)
    reason = f"rows of different files were set aside on {case.into} and {case.source}"
    return replace(case.decide("replay", reason), replay=edit)


def _is_owner_made_by_task(case: _MergeCase, owner: TableName) -> bool:
    versions = case.store.db.read(
        lambda connection: [find_version(connection, tip, owner) for tip in (case.facts.target, case.facts.source)]
    )
    return _is_made_by_task(case.store, *(version for version in versions if version is not None))


def _has_source(positions: "ThreeWayPositions") -> bool:
    """Return whether a source fills the table on any side: then its position determines the rows."""
    return bool(positions.ours or positions.theirs or positions.base)


def _decide_combination(
    case: _MergeCase,
    versions: tuple[TableVersion, TableVersion, TableVersion],
    positions: "ThreeWayPositions",
    quarantined: "ThreeWayPositions | None",
) -> MergeDecision:
    """Decide about a table that changed on both sides; `versions` are those of the base, ours and theirs."""
    from runnel.lake.iceberg.table_definition import IncompatibleChanges
    from runnel.lake.merge.three_way import MergeSide

    store, decide, (base_version, ours, theirs) = case.store, case.decide, versions
    sides = [
        MergeSide(
            name, version.location, partial(read_table_history, store, case.base, base_version, commit, case.table)
        )
        for name, version, commit in (
            (case.into, ours, case.facts.target),
            (case.source, theirs, case.facts.source),
        )
    ]
    try:
        if _is_made_by_task(store, ours, theirs):
            return decide("compute", f"computed by a task, and changed on both {case.into} and {case.source}")
        replay = combine_changes(store, base_version.location, *sides, positions=quarantined or positions)
    except IncompatibleChanges as clash:
        return decide("conflict", clash.reason)
    except CorruptData:
        if case.base.expired_at is None:
            raise
        return decide(
            "conflict", f"the version that both started from is gone: the retention of commit {case.base.id[:8]} ended"
        )
    if replay.is_empty and replay.base_location == ours.location and not positions.has_gained_reads:
        return decide("same", f"{case.into} has it already", is_agreed=True)
    onto_theirs = replay.base_location != ours.location
    decision = decide(
        "replay",
        f"changed on both {case.into} and {case.source}, independently of each other",
        processed_files=positions.gained_files(whole=onto_theirs),
    )
    return replace(
        decision,
        replay=replay,
        content=None if onto_theirs else positions.content_after_merge(ours.content, theirs.content),
    )


def combine_changes(
    store: "Store",
    base: str,
    ours: "MergeSide",
    theirs: "MergeSide",
    *,
    undo: bool = False,
    positions: "ThreeWayPositions | None" = None,
    paths: "Mapping[str, str] | None" = None,
) -> "MergeEdit | FileReplay":
    """Return how to apply a change of any kind of table from one side to the other, or raise IncompatibleChanges."""
    from runnel.lake.iceberg.table_metadata import load_metadata
    from runnel.lake.iceberg.table_properties import is_file_table
    from runnel.lake.merge.merge_file_tables import replay_files
    from runnel.lake.merge.three_way import plan_merge_edit

    if is_file_table(load_metadata(store, base)):
        return replay_files(store, base, ours, theirs)
    return plan_merge_edit(store, base, ours, theirs, undo=undo, source_positions=positions, paths=paths)


def read_table_history(
    store: "Store", base: Commit, base_version: TableVersion, tip: Commit, table: TableName
) -> "tuple[MergeStep, ...]":
    """Return the changes of a table since a commit, in order."""
    from runnel.lake.merge.table_history import list_steps_between

    return store.db.read(lambda connection: list_steps_between(connection, base, base_version, tip, table))


def _is_made_by_task(store: "Store", *versions: TableVersion) -> bool:
    from runnel.lake.iceberg.table_metadata import load_metadata

    return any(
        load_metadata(store, version.location).properties.get(table_properties.MADE_BY) == "task"
        for version in versions
    )
