"""Plays a history of a source on a real lake and on the model, and compares both after each step."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from runnel.client.lake import Lake
from runnel.errors import RunnelError
from runnel.lake.history.branches import fork_branch
from runnel.lake.merge.merge import merge_branch
from runnel.lake.merge.revert import revert_commit
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase as erase_rows
from runnel.lake.work_runner import ChooseRunner, WorkContext, run_in_process
from runnel.names import TableName
from runnel.run.run_context import RunContext
from tests.connect.source_histories import model
from tests.connect.source_histories.model import Contents, State
from tests.run.project import Project

X = Contents(((1, 1, 10), (2, 1, 20)))
Y = Contents(((1, 2, 30),), ("3,1,bad",))
Z = Contents((), ("4,1,worse",))
W = Contents(((2, 2, 40), (5, 1, 50)), ("6,1,wrong", "7,1,wrong"))
V = Contents(((1, 3, 60), (5, 2, 70)))
EMPTY = Contents()
CONTENTS = {"X": X, "Y": Y, "Z": Z, "W": W, "V": V, "EMPTY": EMPTY}

TABLE = "ods.orders"
FILES = 'rn.files("data/*.csv", schema="id long, ts long, amount long", removed="{removed}")'
CHANGES = 'rn.changes({files}, key="id", sequence_by="ts")'

Step = tuple[object, ...]
"""The name of a method of `Machine`, and its arguments."""


def parsed(text: str) -> list[Step]:
    """Return the steps that a text says, such as `put a X; run; revert 1`."""
    return [tuple(int(word) if word.isdigit() else word for word in step.split()) for step in text.split(";")]


@dataclass(frozen=True)
class Kind:
    """How the source is declared."""

    removed: str = "keep"
    is_log: bool = False

    @property
    def flow(self) -> str:
        """Return the text of the flow file."""
        files = FILES.format(removed=self.removed)
        origin = CHANGES.format(files=files) if self.is_log else files
        return f'import runnel as rn\nrn.source("{TABLE}", {origin}, on_bad="quarantine")\n'

    @property
    def table(self) -> str:
        """Return the table that the files are read into."""
        return f"{TABLE}__changes" if self.is_log else TABLE


class Machine:
    """A project with one source, and the model of it."""

    def __init__(self, root: Path, kind: Kind, choose_runner: ChooseRunner = run_in_process) -> None:
        """Create the project; `choose_runner` says where its files are read and compacted."""
        self.project, self.kind, self.choose_runner = Project(root), kind, choose_runner
        self.project.write("flows/flow.py", kind.flow)
        (root / "data").mkdir()
        self.folder: dict[str, Contents] = {}
        self.clock = 0
        self.done: list[str] = []  # what took effect
        self.merged: State | None = None  # what dev had when main got it last
        with self.project.open() as lake:
            first = lake.store.commit("main").id
        self.histories: dict[str, list[tuple[str, State, str]]] = {"main": [(first, State(), "root")]}

    def play(self, *steps: Step) -> "Machine":
        """Carry out some steps, and compare after each."""
        for step in steps:
            name, *arguments = step
            getattr(self, str(name))(*arguments)
        return self

    def tip(self, branch: str = "main") -> State:
        """Return the state of a branch."""
        return self.histories[branch][-1][1]

    def put(self, name: str, contents: str) -> None:
        """Write a file."""
        self.folder[f"data/{name}.csv"] = CONTENTS[contents]
        path = self.project.root / f"data/{name}.csv"
        path.write_text(CONTENTS[contents].text)
        self.clock += 1
        os.utime(path, (1_700_000_000 + self.clock,) * 2)

    def move(self, name: str, to: str) -> None:
        """Rename a file."""
        if name != to and f"data/{name}.csv" in self.folder:
            self.folder[f"data/{to}.csv"] = self.folder.pop(f"data/{name}.csv")
            (self.project.root / f"data/{name}.csv").rename(self.project.root / f"data/{to}.csv")

    def remove(self, name: str) -> None:
        """Remove a file."""
        if self.folder.pop(f"data/{name}.csv", None) is not None:
            (self.project.root / f"data/{name}.csv").unlink()

    def run(self, branch: str = "main") -> None:
        """Run on a branch."""
        if branch not in self.histories:
            return
        tip = self.tip(branch)
        if not tip.exists and not self.folder:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunContext, "choose_runner_of", lambda _context, _table: self.choose_runner)
            ran = self.project.run(branch=branch)
        assert ran.state in ("succeeded", "nothing"), ran
        expected = model.after_run(tip, self.folder, deletes=self.kind.removed == "delete")
        if ran.commit is not None:
            self._record(branch, ran.commit, expected, "run")
        assert ran.commit is not None or expected == tip, "a run did nothing though something changed"
        self.compare(branch)

    def revert(self, back: int = 0, branch: str = "main") -> None:
        """Undo one of the commits of a branch, counted from the newest."""
        commits = self._commits(branch, ("run", "release", "revert"))
        if back >= len(commits):
            return
        place = commits[-1 - back]
        history = self.histories[branch]
        expected = model.after_revert(self.tip(branch), history[place - 1][1], history[place][1])
        with self.project.open() as lake:
            try:
                made = revert_commit(lake.store, history[place][0], branch)
            except RunnelError as error:
                assert error.code in ("REVERT_CONFLICT", "REVERT_NOTHING"), error
                return
        assert expected is not None, "a revert succeeded though a file was read again since"
        self._record(branch, made.id, expected, "revert")
        self.compare(branch)

    def rewind(self, back: int = 1, branch: str = "main") -> None:
        """Take the source back by so many commits."""
        history = self.histories.get(branch, [])
        if len(history) < 2:
            return
        target = history[max(0, len(history) - 1 - back)]
        with self.project.open() as lake:
            try:
                done = lake.rewind(TABLE, to=target[0], branch=branch)
            except RunnelError as error:
                assert error.code == "REWIND_NOTHING", error
                return
        assert done.commit is not None
        self._record(branch, done.commit.id, model.after_rewind(self.tip(branch), target[1]), "rewind")
        self.compare(branch)

    def release(self, name: str, branch: str = "main") -> None:
        """Release the rows of a file, corrected."""
        if branch not in self.histories:
            return
        self.clock += 1
        corrected = (8, self.clock, self.clock)
        self.project.write("right.csv", Contents((corrected,)).text)
        expected = model.after_release(self.tip(branch), f"data/{name}.csv", corrected)
        with self.project.open() as lake:
            try:
                done = lake.release(
                    self.kind.table, self.project.root / "right.csv", file=f"data/{name}.csv", branch=branch
                )
            except RunnelError as error:
                assert expected is None and error.code in ("RELEASE_NOTHING", "RELEASE_FILES"), error
                return
        assert expected is not None and done.commit is not None, "rows of several files were released as those of one"
        self._record(branch, done.commit.id, expected, "release")
        self.compare(branch)

    def compact(self, branch: str = "main") -> None:
        """Compact every table of a branch."""
        if branch in self.histories:
            with self.project.open() as lake:
                if any(
                    result.commit for result in compact(lake.store, branch=branch, work=WorkContext(self.choose_runner))
                ):
                    self.done.append(f"compact on {branch}")
            self.compare(branch)

    def erase(self, row_id: int) -> None:
        """Erase the rows with an id from every version."""
        known = [state for history in self.histories.values() for _, state, _ in history]
        if not any(row[0] == row_id for state in known for row in state.rows()):
            return
        with self.project.open() as lake:
            for table in dict.fromkeys((self.kind.table, TABLE)):
                erase_rows(lake.store, TableName.parse(table), f"id = {row_id}")
        for state in {id(state): state for state in known}.values():
            model.erase(state, row_id)
        self.done.append("erase")
        for branch in self.histories:
            self.compare(branch)

    def fork(self) -> None:
        """Make the branch dev off main."""
        if "dev" not in self.histories:
            with self.project.open() as lake:
                fork_branch(lake.store.db, "dev", lake.store.commit("main"), "ada")
            self.histories["dev"] = list(self.histories["main"])
            self.merged = self.tip("main")

    def merge(self) -> None:
        """Merge the branch dev into main."""
        if "dev" not in self.histories or self.merged is None:
            return
        with self.project.open() as lake:
            try:
                done = merge_branch(lake.store, "dev", "main")
            except RunnelError as error:
                assert error.code in ("MERGE_CONFLICT", "MERGE_NEEDS_RUN"), error
                self.done.append(f"conflict: {error.what}")
                return
        has_moved = any(step.changes_table for step in done.plan.steps if str(step.table) == self.kind.table)
        expected = model.after_merge(self.merged, self.tip(), self.tip("dev"), with_position=has_moved)
        assert expected is not None, "a merge succeeded though both branches read a file differently"
        self.merged = self.tip("dev")
        if done.commit is not None:
            self._record("main", done.commit.id, expected, "merge")
        self.compare()

    def compare(self, branch: str = "main") -> None:
        """Compare the lake with the model."""
        tip = self.tip(branch)
        with self.project.open() as lake:
            rows = _rows(lake, self.kind.table, branch)
            exists = TableName.parse(self.kind.table) in lake.store.state(branch)
            quarantined = lake.quarantine(self.kind.table, branch=branch) if exists else []
            last = self.histories[branch][-1]
            if self.kind.is_log and last[2] == "run":
                follows = _rows(lake, TABLE, branch)
                assert follows == model.applied(tip.rows()), f"{TABLE} does not follow from its log: {self.done}"
        assert rows == tip.rows(), f"rows after {self.done}"
        found = sorted((row.file or "", row.raw or "") for row in quarantined)
        assert found == tip.quarantined(), f"quarantine after {self.done}"

    def _commits(self, branch: str, kinds: tuple[str, ...]) -> list[int]:
        history = self.histories.get(branch, [])
        return [place for place, (_, _, kind) in enumerate(history) if kind in kinds]

    def _record(self, branch: str, commit: str, state: State, kind: str) -> None:
        self.histories[branch].append((commit, state, kind))
        self.done.append(f"{kind} on {branch}")


def _rows(lake: Lake, table: str, branch: str) -> list[model.Row]:
    if TableName.parse(table) not in lake.store.state(branch):
        return []
    return sorted(lake.query(f"select id, ts, amount from {table}", at=branch, engine="duckdb").rows())
