"""A project that things happen to, and the law that must hold after each of them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.client.lake import Lake
from runnel.run.results.run_result import RunResult
from tests.run.equivalence.oracle import Oracle, Rows, plain, rows_of
from tests.run.equivalence.project_model import SCHEMA, Source, World
from tests.run.equivalence.source_rows import COLUMNS, Row, new_row, text_of
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_FILES, _FIRST_ROWS = 3, 14


class Unlawful(AssertionError):
    """A table is not what a full computation gives."""


class Machine:
    """A project with what is known about it: its files, and what its sources have taken in."""

    def __init__(self, root: Path, spark: "SparkSession", world: World) -> None:
        self.project = Project(root, spark)
        self.world = world
        self.oracle = Oracle(spark)
        self.files: dict[str, list[Row]] = {}
        self.taken: dict[str, list[Row]] = {}  # by path: what a source has read, and not lost
        self.is_told = True  # whether `taken` is what the sources' tables hold: not after a revert or a merge
        self.actions: Counter[str] = Counter()
        self.story: list[str] = []
        self.last: RunResult | None = None
        self._count = 0
        self._flows: set[str] = set()

    def begin(self, seed: int) -> None:
        """Give every source its first rows, and run."""
        chance = Random(seed)
        self.declare(self.world)
        for source in self.world.sources:
            for _ in range(_FIRST_FILES):
                self.add(source, [new_row(chance, self.number()) for _ in range(_FIRST_ROWS)])
        self.settle()

    def number(self) -> int:
        """Return a number that was not given before."""
        self._count += 1
        return self._count

    def declare(self, world: World) -> None:
        """Write the flow files of a world."""
        self.world = world
        files = world.files()
        for path in self._flows - set(files):
            (self.project.root / path).unlink()
        for path, text in files.items():
            self.project.write(path, text)
        self._flows = set(files)

    def add(self, source: Source, rows: list[Row], branch: str = "main") -> str | None:
        """Add rows to a source: as a new file, whose path is returned, or by hand."""
        if source.form != "manual":
            path = f"data/{source.name}/f{self.number()}.{source.form}"
            self.put(path, rows)
            return path
        path = f"loads/f{self.number()}.csv"
        self.project.write(path, text_of("csv", rows))
        with self.project.open() as lake:
            options: dict[str, Any] = {"schema": SCHEMA}
            if source.table not in lake.tables(at=branch):
                options |= {"partition": list(source.partition)}
            lake.load(source.table, self.project.root / path, branch=branch, **options)
        return None

    def put(self, path: str, rows: list[Row]) -> None:
        """Write a file."""
        self.files[path] = rows
        self.project.write(path, text_of(path.rpartition(".")[2], rows))

    def drop(self, path: str) -> None:
        """Remove a file."""
        del self.files[path]
        (self.project.root / path).unlink()

    def paths(self, source: Source) -> list[str]:
        """Return the files of a source."""
        return [path for path in self.files if path.startswith(f"data/{source.name}/")]

    def has_lost(self, source: Source) -> bool:
        """Tell whether a source holds rows of files that are no longer there."""
        prefix = f"data/{source.name}/"
        return any(path.startswith(prefix) and path not in self.files for path in self.taken)

    def run(self, *select: str, branch: str = "main") -> RunResult:
        """Run; on main, sources take in what their files hold."""
        self.last = self.project.run(*select, branch=branch)
        tasks = {task.table for task in self.world.tasks}
        self.actions.update(step.action for step in self.last.steps if str(step.table) in tasks)
        if branch == "main" and self.last.state != "failed":
            chosen = set().union(*(self.world.above(name.lstrip("+")) for name in select)) if select else None
            self._take([source for source in self.world.sources if chosen is None or source.table in chosen])
        return self.last

    def run_in_vain(self) -> None:
        """Run what may fail; if it does, nothing is published."""
        with self.project.open() as lake:
            before = lake.store.commit("main").id
            if self.run().state == "failed" and lake.store.commit("main").id != before:
                raise Unlawful(self.told("a run that failed was published"))

    def settle(self) -> None:
        """Run until all is computed; every table must be right, and a second run must find nothing to do."""
        ran = self.run()
        if ran.state not in ("succeeded", "nothing"):
            raise Unlawful(self.told("the run failed", *map(str, ran.errors)))
        self.compare()
        self.rest()

    def rest(self) -> None:
        """Run again; nothing may be done."""
        plan = [f"{step.table} {step.action}: {step.reason}" for step in self.project.plan().work]
        if plan or self.project.run().state != "nothing":
            raise Unlawful(self.told("there is something to do right after a run", *plan))

    def compare(self, at: str = "main") -> None:
        """Hold every table against a full computation from the sources as the lake has them."""
        with self.project.open() as lake:
            held = {source.table: read(lake, source.table, at) for source in self.world.sources}
            if at == "main" and self.is_told:
                self._compare_sources(held)
            for table, made in self.oracle.tables(self.world, held).items():
                task, found = self.world.task(table), read(lake, table, at)
                if set(found.column_names) != set(made.rows.column_names):
                    raise Unlawful(self.told(f"{table} has {found.column_names}, not {made.rows.column_names}"))
                self._same(table, rows_of(made.rows, task.uncompared), rows_of(found, task.uncompared))
                if made.aside is not None:
                    name = f"quarantine.{table.replace('.', '_')}"
                    there = read(lake, name, at).num_rows if name in lake.tables(at=at) else 0
                    if there != made.aside.num_rows:
                        raise Unlawful(self.told(f"{name} has {there} rows, not {made.aside.num_rows}"))

    def told(self, *what: str) -> str:
        """Return what is wrong, with all that happened before."""
        steps = self.last.steps if self.last else ()
        last = [f"  {step.table} {step.action} {step.state}: {step.reason}" for step in steps]
        files = [f"  {path}: {len(rows)} rows" for path, rows in self.files.items()]
        return "\n".join([*what, "so far: " + ", ".join(self.story), *last, *files, str(self.world)])

    @contextmanager
    def lake(self) -> Iterator[Lake]:
        """Open the lake."""
        with self.project.open() as lake:
            yield lake

    def _compare_sources(self, held: dict[str, pa.Table]) -> None:
        for source in self.world.sources:
            if source.form != "manual":
                table = held[source.table]
                self._same(source.table, self._files_say(source, table), rows_of(table))

    def _same(self, table: str, expected: Rows, found: Rows) -> None:
        if expected != found:
            lines = [*_lines("lacks", expected - found), *_lines("has", found - expected)]
            raise Unlawful(self.told(f"{table} is wrong", *lines))

    def _take(self, sources: Iterable[Source]) -> None:
        for source in sources:
            prefix = f"data/{source.name}/"
            now = {path: self.files[path] for path in self.paths(source)}
            old = {path: rows for path, rows in self.taken.items() if path.startswith(prefix)}
            for path in old:
                renamed = any(rows == old[path] for name, rows in now.items() if name not in old)
                if path not in now and (source.removed == "delete" or renamed):
                    del self.taken[path]
            self.taken |= now

    def _files_say(self, source: Source, held: pa.Table) -> Rows:
        names = [*COLUMNS, *(["note"] if "note" in held.column_names else [])]
        rows = [row for path, some in self.taken.items() if path.startswith(f"data/{source.name}/") for row in some]
        return Counter(tuple(sorted((name, plain(row.get(name))) for name in names)) for row in rows)


def read(lake: Lake, table: str, at: str) -> pa.Table:
    """Return a table as Arrow."""
    return lake.query(f"select * from {table}", at=at, engine="duckdb").table()


def _lines(word: str, rows: Rows) -> list[str]:
    return [f"  {word} {number} x {dict(row)}" for row, number in list(rows.items())[:6]]
