"""Flows and facts with defaults, so that a test states only what matters. The facts are held in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Flow, Source, Task, TaskOptions
from runnel.declare.model.source_location import SourceLocation
from runnel.model.change_size import ChangeSize, VersionSize
from runnel.model.date_range import DateRange, DateSlices
from runnel.model.slice_key import ChangedSlice
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from runnel.plan.decisions.task import decide_task
from runnel.plan.facts import SourceChanges
from runnel.plan.fingerprint.code.code_unit import FingerprintPart
from runnel.plan.fingerprint.fingerprints import Fingerprint
from runnel.plan.graph import Graph
from runnel.plan.planner import PlanScope, make_plan
from runnel.plan.result_key import compute_task_key
from runnel.plan.selection import select_tables
from runnel.plan.steps import Plan, PlanStep


def name(text: str) -> TableName:
    return TableName.parse(text)


def head(table: str | TableName, content: str = "1") -> TableVersion:
    return TableVersion(f"{table}/{content}.json", content)


def task(table: str, *reads: str, file: str = "flows/shop.py", **options) -> Task:
    inputs = tuple((name(text).name, name(text)) for text in reads)
    return Task(name(table), name(table).name, SourceLocation(file, 12), inputs, options=TaskOptions(**options))


def files(table: str, *, tags: tuple[str, ...] = (), file: str = "flows/shop.py") -> Source:
    origin = Files(f"data/{name(table).name}/*.csv", "csv")
    return Source(name(table), origin, SourceLocation(file, 3), tags=tags)


def manual(table: str) -> Source:
    return Source(name(table), Manual(), SourceLocation("flows/shop.py", 4))


def flow(*made: Task | Source) -> Flow:
    return Flow(
        Path("shop"),
        {each.table: each for each in made if isinstance(each, Task)},
        {each.table: each for each in made if isinstance(each, Source)},
    )


def mark(each: Task | str, code: str = "a") -> Fingerprint:
    """Return a fingerprint; `code` is what changes when someone edits the task."""
    table = each.table if isinstance(each, Task) else each
    return Fingerprint(
        f"{table}:{code}", (FingerprintPart("code", str(table), code, SourceLocation("flows/shop.py", 31)),)
    )


@dataclass
class Known:
    """Facts in memory. `asked` are the look-ups of results, each with its number of keys."""

    heads: dict[TableName, TableVersion] = field(default_factory=dict)
    kept: list[TaskResult] = field(default_factory=list)
    moves: dict[TableName, ChangeSize] = field(default_factory=dict)
    sizes: dict[TableName, VersionSize] = field(default_factory=dict)
    sources: dict[TableName, SourceChanges] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    changed: dict[TableName, tuple[ChangedSlice, ...]] = field(default_factory=dict)
    has_columns: dict[TableName, tuple[str, ...]] = field(default_factory=dict)
    days: dict[TableName, DateSlices] = field(default_factory=dict)
    slice_counts: dict[TableName, int] = field(default_factory=dict)
    streams: dict[TableName, dict[TableName, str]] = field(default_factory=dict)
    others: dict[TableName, tuple[TableVersion, ...]] = field(default_factory=dict)
    moves_between: dict[tuple[str, str], ChangeSize] = field(default_factory=dict)

    def head(self, table: TableName) -> TableVersion | None:
        return self.heads.get(table)

    def results(self, keys: Iterable[tuple[TableName, str]]) -> Mapping[tuple[TableName, str], TaskResult]:
        wanted = set(keys)
        self.asked.append(len(wanted))
        return {(each.table, each.key): each for each in self.kept if (each.table, each.key) in wanted}

    def latest_result(self, table: TableName, head: TableVersion) -> TaskResult | None:
        found = [each for each in self.kept if each.table == table and each.head.content == head.content]
        return found[-1] if found else None

    def recent_results(self, table: TableName) -> list[TaskResult]:
        return [each for each in reversed(self.kept) if each.table == table][:3]

    def find_versions(self, table: TableName, content: str) -> tuple[TableVersion, ...]:
        return tuple(each for each in self.others.get(table, ()) if each.content == content)

    def change_size(self, table: TableName, before: TableVersion, after: TableVersion) -> ChangeSize:
        assert before.location and after.location, "only versions that are there can be compared"
        return self.moves_between.get((before.location, after.location)) or self.moves[table]

    def changed_slices(
        self, table: TableName, before: TableVersion, after: TableVersion, expressions: tuple[str, ...]
    ) -> tuple[ChangedSlice, ...] | None:
        return self.changed.get(table)

    def slice_count(self, table: TableName, head: TableVersion, expressions: tuple[str, ...]) -> int | None:
        return self.slice_counts.get(table)

    def date_slices(
        self, table: TableName, head: TableVersion, by: tuple[str, ...], days: DateRange
    ) -> DateSlices | None:
        return self.days.get(table)

    def columns(self, table: TableName, head: TableVersion) -> tuple[str, ...]:
        return self.has_columns.get(table, ())

    def size(self, table: TableName, head: TableVersion) -> VersionSize | None:
        return self.sizes.get(table)

    def source_changes(self, table: TableName) -> SourceChanges:
        return self.sources.get(table, SourceChanges())

    def stream_positions(self, table: TableName) -> Mapping[TableName, str] | None:
        return self.streams.get(table)

    def find_version(self, table: TableName, content: str) -> TableVersion | None:
        return None

    def has(self, table: str, content: str = "1", size: VersionSize | None = None) -> "Known":
        """Put a version of a table on the branch."""
        self.heads[name(table)] = head(table, content)
        if size is not None:
            self.sizes[name(table)] = size
        return self

    def moved(self, table: str, content: str = "2", **movement) -> "Known":
        """Change a table, with how it moved."""
        self.moves[name(table)] = ChangeSize(**movement)
        return self.has(table, content)

    def arrives(self, table: str, **arrivals) -> "Known":
        self.sources[name(table)] = SourceChanges(**arrivals)
        return self

    def computed(
        self,
        made: Task,
        content: str = "1",
        code: str = "a",
        run: str = "r1",
        branch: str = "main",
        publish: bool = True,
    ) -> "Known":
        """Record that a task was computed from its inputs as they are, and put the result in its table."""
        inputs = {table: self.heads[table] for table in made.input_tables}
        key = compute_task_key(made, mark(made, code).digest, inputs)
        here = head(made.table, content)
        stored = mark(made, code).to_json()
        self.kept.append(TaskResult(made.table, key, here, stored, inputs, run, branch, "2026-01-02T08:00:00Z"))
        if publish:
            self.heads[made.table] = here
        return self


def decided(made: Task, facts: Known, code: str = "a", **options) -> PlanStep:
    inputs = {table: facts.head(table) for table in made.input_tables}
    return decide_task(made, mark(made, code), inputs, facts, branch="main", **options)


def planned(
    project: Flow,
    facts: Known,
    *include: str,
    exclude: tuple[str, ...] = (),
    edited: Mapping[str, str] | None = None,
    full_refresh: bool = False,
    days: DateRange | None = None,
) -> Plan:
    """Plan on main; `edited` gives the code of tasks that were changed."""
    codes = edited or {}
    return make_plan(
        project,
        facts,
        lambda each: mark(each, codes.get(str(each.table), "a")),
        branch="main",
        commit="c0ffee",
        scope=PlanScope(select_tables(Graph(project), project, include, exclude, None), full_refresh, days),
    )


def lines(plan: Plan) -> list[str]:
    """Return each step on a line: `~` where it is expected, `?` where it is analysed first."""
    return [
        f"{step.table} {'~' if step.is_expected else ''}{step.action}{'?' if step.analyse else ''}: {step.reason}"
        for step in plan.steps
    ]
