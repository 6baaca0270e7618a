"""The lake against a model: branches, writes, merges, reverts, tags, compaction and gc in random order.

The model is plain Python: a commit is a state (table -> set of rows) with parents. Every row has an id of its own, so
that what a merge or a revert must give can be said with sets.
"""

import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from runnel.errors import Conflict, Mistake
from runnel.lake.history import branches, tags
from runnel.lake.history.commits import Commit, find_commit
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.merge.merge import merge_branch
from runnel.lake.merge.revert import revert_commit
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows

TABLES = ("ods.whole", "ods.by_day")
DAYS = ("d1", "d2", "d3")
Row = tuple[int, str, int]
State = dict[str, frozenset[Row]]


@dataclass(frozen=True)
class Node:
    """A commit of the model."""

    id: str
    state: State
    parents: tuple[str, ...] = ()


@dataclass
class Model:
    """What the lake must be."""

    nodes: dict[str, Node] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, made: Commit | str, state: State, merged: str | None = None) -> None:
        name = made if isinstance(made, str) else made.id
        parents = tuple(filter(None, (self.heads.get(branch), merged)))
        self.nodes[name] = Node(name, state, parents)
        self.heads[branch] = name

    def state(self, branch: str) -> State:
        return self.nodes[self.heads[branch]].state

    def behind(self, name: str) -> set[str]:
        found, waiting = set(), [name]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting.extend(self.nodes[at].parents)
        return found

    def bases(self, ours: str, theirs: str) -> list[Node]:
        """Return the common ancestors that no other common ancestor descends from."""
        shared = self.behind(ours) & self.behind(theirs)
        older = {parent for name in shared for above in self.nodes[name].parents for parent in self.behind(above)}
        return [self.nodes[name] for name in shared - older]


def combined(ours: State, theirs: State, base: State) -> State:
    """Return ours with what they added and removed since the base."""
    result = {}
    for table in ours.keys() | theirs.keys():
        was = base.get(table, frozenset())
        now, then = ours.get(table, frozenset()), theirs.get(table, frozenset())
        result[table] = (now | (then - was)) - (was - then)
    return result


def only_appended(now: State, base: State) -> bool:
    return all(base.get(table, frozenset()) <= now.get(table, frozenset()) for table in now.keys() | base.keys())


class LakeMachine(RuleBasedStateMachine):
    """Does the same to a lake and to the model, and compares."""

    names = Bundle("names")
    commits = Bundle("commits")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.open(f"sqlite:///{self.folder.name}/catalog.db", f"{self.folder.name}/warehouse")
        self.model = Model()
        self.count = 0
        self.seen: dict[str, dict[str, str]] = {}

    @initialize(target=names)
    def begin(self) -> str:
        self.model.commit("main", self.store.commit("main"), {})
        state: State = {}
        for table, by in zip(TABLES, (None, "day"), strict=True):
            made = create(self.store, table, rows(first := self.row(DAYS[0])), by=by)
            state = {**state, table: frozenset([first])}
            self.model.commit("main", made, state)
        return "main"

    def row(self, day: str) -> Row:
        self.count += 1
        return (self.count, day, self.count * 10)

    def changed(self, branch: str, table: str, now: frozenset[Row]) -> State:
        return {**self.model.state(branch), table: now}

    @rule(target=names, origin=names)
    def fork(self, origin: str) -> Any:
        if origin not in self.model.heads or len(self.model.heads) > 4:
            return multiple()
        name = f"b{len(self.model.nodes)}_{self.count}"
        self.count += 1
        branches.fork_branch(self.store.db, name, self.store.commit(origin), "ada")
        self.model.heads[name] = self.model.heads[origin]
        return name

    @rule(
        target=commits, branch=names, table=st.sampled_from(TABLES), day=st.sampled_from(DAYS), most=st.integers(1, 2)
    )
    def append(self, branch: str, table: str, day: str, most: int) -> Any:
        if branch not in self.model.heads or table not in self.model.state(branch):
            return multiple()
        new = [self.row(day) for _ in range(most)]
        made = add(self.store, table, rows(*new), branch=branch)
        self.model.commit(branch, made, self.changed(branch, table, self.model.state(branch)[table] | set(new)))
        return made.id

    @rule(target=commits, branch=names, day=st.sampled_from(DAYS))
    def overwrite_day(self, branch: str, day: str) -> Any:
        table = TABLES[1]
        if branch not in self.model.heads or table not in self.model.state(branch):
            return multiple()
        new = self.row(day)

        def edit(version: TableVersion) -> VersionEdit:
            metadata = table_metadata.load_metadata(self.store, version.location)
            gone = [entry for entry in read_entries(self.store, metadata) if entry.file.partition[0] == day]
            return VersionEdit(parquet_writer.write_rows(self.store, metadata, rows(new).to_batches()), gone)

        made = publish_edit(self.store, branch, TableName.parse(table), edit, f"overwrite {day}")
        kept = frozenset(row for row in self.model.state(branch)[table] if row[1] != day)
        self.model.commit(branch, made, self.changed(branch, table, kept | {new}))
        return made.id

    @rule(target=commits, source=names, into=names)
    def merge_branch(self, source: str, into: str) -> Any:
        if source == into or not {source, into} <= self.model.heads.keys():
            return multiple()
        ours, theirs = self.model.heads[into], self.model.heads[source]
        bases = self.model.bases(ours, theirs)
        wanted = [combined(self.model.state(into), self.model.state(source), base.state) for base in bases]
        try:
            done = merge_branch(self.store, source, into)
        except Conflict:
            simple = len(bases) == 1 and all(
                only_appended(self.model.state(name), bases[0].state) for name in (source, into)
            )
            assert not simple, "appends on both sides never conflict"
            return multiple()
        if done.commit is None:
            assert self.model.state(into) in wanted
            return multiple()
        assert self.states_of(done.commit) in wanted
        self.model.commit(into, done.commit, self.states_of(done.commit), merged=theirs)
        return done.commit.id

    @rule(target=commits, branch=names, chosen=commits)
    def undo(self, branch: str, chosen: str) -> Any:
        if branch not in self.model.heads or not self.on_line(branch, chosen):
            return multiple()
        node, now = self.model.nodes[chosen], self.model.state(branch)
        before = self.model.nodes[node.parents[0]].state
        wanted = combined(now, before, node.state)
        try:
            made = revert_commit(self.store, chosen, branch)
        except Conflict:
            return multiple()
        except Mistake as mistake:
            assert mistake.code == "REVERT_NOTHING" and wanted == now
            return multiple()
        assert self.states_of(made) == wanted
        self.model.commit(branch, made, wanted)
        return made.id

    @rule(branch=names)
    def compact_branch(self, branch: str) -> None:
        if branch in self.model.heads:
            for done in compact(self.store, branch=branch):
                if done.commit:
                    self.model.commit(branch, done.commit, self.model.state(branch))

    @rule(branch=names)
    def tag(self, branch: str) -> None:
        if branch in self.model.heads:
            name = f"v{len(self.model.tags)}"
            tags.create_tag(self.store, name, branch)
            self.model.tags[name] = self.model.heads[branch]

    @rule(branch=names)
    def delete_branch(self, branch: str) -> None:
        if branch != "main" and branch in self.model.heads:
            branches.delete_branch(self.store.db, branch)
            del self.model.heads[branch]

    @precondition(lambda self: len(self.model.nodes) > 6)
    @rule()
    def sweep(self) -> None:
        for _ in range(2):
            gc(self.store, Retention(commits="0 seconds", grace="0 seconds"))

    @invariant()
    def heads_and_tags_are_right(self) -> None:
        for ref, name in [*self.model.heads.items(), *self.model.tags.items()]:
            commit = self.store.commit(ref)
            assert commit.id == name
            versions = {str(table): version.content for table, version in self.store.state(commit).items()}
            if self.seen.get(name) != versions:  # what was compared before, at the same versions, is not read again
                assert self.states_of(commit) == self.model.nodes[name].state
                self.seen[name] = versions

    def teardown(self) -> None:
        try:
            for name, node in self.model.nodes.items():
                commit = self.store.db.read(lambda connection, name=name: find_commit(connection, name))
                assert commit is not None
                if commit.expired_at is None:
                    assert self.states_of(commit) == node.state
            assert not [finding for finding in fsck(self.store).findings if finding.severity == "error"]
        finally:
            self.store.close()
            self.folder.cleanup()

    def on_line(self, branch: str, chosen: str) -> bool:
        """Tell whether a commit is on the branch's own path and still has its contents and its parent's."""
        if chosen not in self.model.behind(self.model.heads[branch]) or not self.model.nodes[chosen].parents:
            return False
        at: str | None = self.model.heads[branch]
        while at is not None and at != chosen:
            at = next(iter(self.model.nodes[at].parents), None)
        needed = (chosen, self.model.nodes[chosen].parents[0])
        found = [self.store.db.read(lambda connection, name=name: find_commit(connection, name)) for name in needed]
        return at is not None and all(commit is not None and commit.expired_at is None for commit in found)

    def states_of(self, commit: Commit) -> State:
        names = self.store.state(commit)
        return {str(name): frozenset(read(self.store, str(name), commit.id)) for name in names}


LakeMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("RUNNEL_MODEL_EXAMPLES", "8")),
    stateful_step_count=20,
    deadline=None,
    derandomize="RUNNEL_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
TestLake = LakeMachine.TestCase
