"""The life of a source, told once for every kind: what comes, changes, is bad, is killed, branched off and taken back.

Kinds of a family are tables of one project, so that a run reads all of them. Kills meet them in turn: a family has
circles of kinds that go the same way, and at each failpoint a run is killed that reads one kind of each circle, the
next one each time. With RUNNEL_EVERY_KILL=1 every kind meets every kill, which takes some minutes.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import runnel as rn
from runnel.lake import failpoints
from runnel.run.results.run_result import RunResult
from tests.faults.process_helpers import killed, start
from tests.run.project import Project, did

Row = tuple[Any, ...]
OF_EACH = (failpoints.WRITE_DATA, failpoints.WRITE_METADATA)
OF_ALL = (failpoints.PUBLISH_BEFORE, failpoints.PUBLISH_BEFORE_COMMIT, failpoints.PUBLISH_AFTER_COMMIT)
EVERY_KILL = bool(os.environ.get("RUNNEL_EVERY_KILL"))


class Kind:
    """A table, and what there is outside that fills it."""

    columns = "id, name"
    follows = False  # from a log: then a merge has something to compute

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def table(self) -> str:
        return f"ods.{self.name}"

    @property
    def quarantine(self) -> str:
        return f"quarantine.ods_{self.name}"

    def declare(self) -> str:
        """Return its flow, with `on_bad="quarantine"`."""
        raise NotImplementedError

    def put(self, number: int, name: str) -> None:
        """Let there be a row; where this kind knows changes, it takes the place of the one with its number."""
        raise NotImplementedError

    def change(self, number: int, name: str) -> None:
        """Change a row that is there, and do what else can happen to rows of this kind."""
        self.put(number, name)

    def spoil(self, number: int, name: str) -> int:
        """Let there be a good row, and bad ones; return how many will be set aside."""
        raise NotImplementedError

    def rows(self) -> Iterable[Row]:
        """Return the good rows that there are outside."""
        raise NotImplementedError


class Life:
    """What became of each kind at each step, and what ought to."""

    def __init__(self, project: Project, circles: Sequence[Sequence[Kind]], points: dict[str, int]) -> None:
        """Take the failpoints on the way, and how often a run that reads one kind of each circle passes each."""
        self.project = project
        self.circles = circles
        self.kinds = [kind for circle in circles for kind in circle]
        often = points | dict.fromkeys(OF_EACH, len(circles))
        self.kills = [(point, 1 if number % 2 else times) for number, (point, times) in enumerate(often.items())]
        self.kills += [(point, 1) for point in OF_ALL]
        self.found: dict[str, dict[str, Any]] = {}
        self.wanted: dict[str, dict[str, Any]] = {}
        self._numbers, self._lengths = count(1), count(1)
        project.write("flows/flow.py", "\n".join(["import runnel as rn", *(kind.declare() for kind in self.kinds)]))

    def check(self, kind: str, step: str) -> None:
        """Compare."""
        assert self.found[step][kind] == self.wanted[step][kind]

    def live(self) -> "Life":
        """Go through all steps."""
        for step, go in STEPS.items():
            self.found[step] = {kind.name: {} for kind in self.kinds}
            self.wanted[step] = {kind.name: {} for kind in self.kinds}
            go(self, step)
        return self

    def first(self, step: str) -> None:
        self._put(step)
        self.more(step)

    def nothing(self, step: str) -> None:
        commits = self.project.commits()
        self._did(step, self._run(), None)
        assert self.project.commits() == commits

    def more(self, step: str) -> None:
        self._put(step)
        self._did(step, self._run(), "ingest")

    def changed(self, step: str) -> None:
        name = self._name(step)
        for kind in self.kinds:
            kind.change(1, name)
        self._did(step, self._run(), "ingest")
        self._nothing_new()

    def bad(self, step: str) -> None:
        number, name = next(self._numbers), self._name(step)
        for kind in self.kinds:
            self.wanted[step][kind.name]["set aside"] = kind.spoil(number, name)
        self._did(step, self._run(), "ingest")
        self._count_aside(step)
        self._nothing_new()

    def killed(self, step: str) -> None:
        """Kill a run at each point, when the first kind passes it or when the last one does, and run again."""
        for number, (point, nth) in enumerate(self.kills):
            met = self.kinds if EVERY_KILL else [circle[number % len(circle)] for circle in self.circles]
            commits = self.project.commits()
            self._put(point, met)
            name = self._name(point)
            for kind in met:
                kind.change(1, name)
            what = f"{point}:kill@{nth}"
            assert killed(start(run_once, str(self.project.root), fail=what)), f"{what} was never reached"
            assert self.project.commits() == commits + (point == failpoints.PUBLISH_AFTER_COMMIT), what
            self._run()
            self._look(step, what, met)
        self._nothing_new()
        self._look(step, "in the end")
        self._count_aside(step)
        for kind in self.kinds:
            self.wanted[step][kind.name]["set aside"] = self.wanted["bad data"][kind.name]["set aside"]

    def branched(self, step: str) -> None:
        """Let two branches read the same, one of them further, and merge."""
        with self.project.open() as lake:
            lake.branch("dev")
        self._put(step)
        self._run("dev")
        self._put(step)
        self._run()
        with self.project.open() as lake:
            lake.merge("dev", run=any(kind.follows for kind in self.kinds))
        self._look(step, "merged")
        self._run()
        self._look(step, "rows")
        self._nothing_new()

    def taken_back(self, step: str) -> None:
        """A revert takes rows back and keeps the position; a rewind takes back both, and they are read again."""
        before = {kind.name: _sorted(kind.rows()) for kind in self.kinds}
        self._put(step)
        commit = self._run().commit
        assert commit is not None
        with self.project.open() as lake:
            lake.revert(commit)
        self._nothing_new()
        self._look(step, "reverted")
        for kind in self.kinds:
            self.wanted[step][kind.name]["reverted"] = before[kind.name]
        with self.project.open() as lake:
            for kind in self.kinds:
                lake.rewind(kind.table, to=f"{commit}~1")
        self._run()
        self._look(step, "read again")
        self._nothing_new()

    def _name(self, step: str) -> str:
        return f"{step} ".ljust(30 + next(self._lengths), ".")  # stores know objects by their size

    def _put(self, step: str, kinds: Sequence[Kind] = ()) -> None:
        number, name = next(self._numbers), self._name(step)
        for kind in kinds or self.kinds:
            kind.put(number, name)

    def _run(self, branch: str = "main") -> RunResult:
        ran = self.project.run(branch=branch)
        assert not ran.errors, "\n".join(map(str, ran.errors))
        return ran

    def _nothing_new(self) -> None:
        ran = self._run()
        assert ran.commit is None, f"a run that has nothing to do did {did(ran)}"

    def _did(self, step: str, ran: RunResult, action: str | None) -> None:
        for kind in self.kinds:
            self.found[step][kind.name]["did"] = did(ran).get(kind.table)
            self.wanted[step][kind.name]["did"] = action
        self._look(step, "rows")

    def _count_aside(self, step: str) -> None:
        with self.project.open() as lake:
            there = set(lake.tables())
            for kind in self.kinds:
                aside = f"select count(*) from {kind.quarantine}"
                rows = lake.query(aside, engine="duckdb").rows() if kind.quarantine in there else [(0,)]
                self.found[step][kind.name]["set aside"] = rows[0][0]

    def _look(self, step: str, what: str, kinds: Sequence[Kind] = ()) -> None:
        with self.project.open() as lake:
            for kind in kinds or self.kinds:
                rows = lake.query(f"select {kind.columns} from {kind.table}", engine="duckdb").rows()
                self.found[step][kind.name][what] = _sorted(rows)
                self.wanted[step][kind.name][what] = _sorted(kind.rows())


def run_once(root: str) -> None:
    """Run, in a process that is killed in it."""
    with rn.open(root) as lake:
        lake.run()


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(map(tuple, rows), key=repr)


STEPS = {
    "first load": Life.first,
    "nothing new": Life.nothing,
    "new data": Life.more,
    "changed data": Life.changed,
    "bad data": Life.bad,
    "killed at every point": Life.killed,
    "read by two branches": Life.branched,
    "reverted and rewound": Life.taken_back,
}
