"""Make a plan: for every selected table what to do and why, level by level through the graph.

Pure: asks the facts, changes nothing. Results are looked up for many tasks at once: first for all tasks as if nothing
had changed, then for those of a level whose inputs turn out to be others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Flow, Task, log_of
from runnel.errors import Mistake
from runnel.names import TableName
from runnel.plan.date_range import Days
from runnel.plan.decisions.backfill import expected
from runnel.plan.decisions.change_log import decide_changes
from runnel.plan.decisions.expected import Pending, expect_task
from runnel.plan.decisions.source import decide_source
from runnel.plan.decisions.stream import decide_stream
from runnel.plan.decisions.task import Case, decide, settled
from runnel.plan.facts import Facts, Head, Result
from runnel.plan.fingerprint.fingerprints import Fingerprint
from runnel.plan.graph import Graph
from runnel.plan.missing_inputs import missing_input, missing_log
from runnel.plan.steps import Plan, Step

_SPARK = ("rows", "slices", "full", "stream")


def make_plan(
    flow: Flow,
    facts: Facts,
    fingerprints: Callable[[Task], Fingerprint],
    *,
    branch: str,
    commit: str,
    selected: frozenset[TableName],
    full_refresh: bool = False,
    days: Days | None = None,
) -> Plan:
    """Return what to do for the selected tables; the others are read as they stand.

    `fingerprints` is called once for each selected task. All missing inputs are raised at once.
    """
    planning = _Planning(flow, facts, fingerprints, branch, selected, full_refresh, days)
    levels = [[table for table in level if table in selected] for level in Graph(flow).levels]
    planning.foresee(table for level in levels for table in level if table in flow.tasks)
    for level in levels:
        planning.take(level)
    if planning.mistakes:
        raise ProjectMistakes(planning.mistakes)
    steps = tuple(planning.steps[table] for level in levels for table in level)
    return Plan(branch, commit, steps, jvm=any(step.analyse or step.action in _SPARK for step in steps))


@dataclass
class _Planning:
    """One plan in the making. `heads` has the tables whose content is known, `pending` those whose version is not."""

    flow: Flow
    facts: Facts
    fingerprints: Callable[[Task], Fingerprint]
    branch: str
    selected: frozenset[TableName]
    full_refresh: bool
    days: Days | None = None
    prints: dict[TableName, Fingerprint] = field(default_factory=dict)
    heads: dict[TableName, Head] = field(default_factory=dict)
    pending: dict[TableName, Pending] = field(default_factory=dict)
    steps: dict[TableName, Step] = field(default_factory=dict)
    results: dict[tuple[TableName, str], Result | None] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def foresee(self, tables: Iterable[TableName]) -> None:
        """Look up what every task makes of its inputs as they are now: the one look-up of a plan that skips."""
        cases = []
        for table in tables:
            task = self.flow.tasks[table]
            self.prints[table] = self.fingerprints(task)
            heads = {above: self.facts.head(above) for above in task.reads}
            cases.append(self.case(task, {above: head for above, head in heads.items() if head is not None}))
        self.look_up(cases)

    def take(self, level: Iterable[TableName]) -> None:
        """Decide the tables of a level; all that they read is decided."""
        cases = []
        for table in level:
            if table in self.flow.tasks:
                cases.append(self.task_case(self.flow.tasks[table]))
            else:
                self.take_source(table)
        self.look_up(cases)
        for case in cases:
            self.take_task(case)

    def take_source(self, table: TableName) -> None:
        if isinstance(self.flow.sources[table].origin, Changes):
            self.take_changes(table)
            return
        try:
            step, arrivals = decide_source(self.flow.sources[table], self.facts)
        except Mistake as mistake:
            self.mistakes.append(mistake)
            step, arrivals = Step(table, "ingest", mistake.what), None
        self.steps[table] = step
        if step.head is not None:
            self.heads[table] = step.head
        if step.action == "ingest" and not (step.head and step.head.location):
            self.pending[table] = Pending(step, arrivals)

    def take_changes(self, table: TableName) -> None:
        """Decide a table that follows from a log, which is decided; a log that is not selected stays as it is."""
        source, above = self.flow.sources[table], log_of(table)
        log = self.heads.get(above) if above in self.steps else self.facts.head(above)
        pending = self.pending.get(above)
        if log is None and pending is None:
            self.mistakes.append(missing_log(source, above))
        step = decide_changes(source, log, pending.reason if pending else None, self.facts)
        step = self.steps[table] = replace(step, needs=tuple(one for one in step.needs if one in self.steps))
        if step.head is not None:
            self.heads[table] = step.head
        if step.head is None or not step.head.location:
            self.pending[table] = Pending(step)

    def take_stream(self, case: Case) -> None:
        """Decide a stream. What reads its table is decided again once it has gone on."""
        task = case.task
        step = decide_stream(task, case.inputs, self.pending.keys() & set(task.reads), self.facts)
        step = self.steps[task.table] = replace(step, needs=tuple(one for one in task.reads if one in self.steps))
        if step.head is not None:
            self.heads[task.table] = step.head
        else:
            self.pending[task.table] = Pending(step)

    def take_task(self, case: Case) -> None:
        task = case.task
        if task.options.stream:
            self.take_stream(case)
            return
        known = self.results.get((task.table, case.key)) if self.is_whole(case) else None
        pending = {table: self.pending[table] for table in task.reads if table in self.pending}
        if not pending:
            step = decide(case, known, self.facts)
        elif known is not None and not case.forced and case.days is None:
            step = settled(case, known, self.facts)
        else:
            there = {table: head for table, head in case.inputs.items() if table not in pending}
            step = expect_task(self.case(task, there), pending, self.facts)
            if case.days is not None and not case.forced:
                step = expected(self.case(task, there), step, pending, self.facts)
        needs = tuple(table for table in task.reads if table in self.steps)
        is_expected = bool(pending) or any(self.steps[table].is_expected for table in needs)
        step = self.steps[task.table] = replace(step, needs=needs, is_expected=is_expected)
        if step.head is not None:
            self.heads[task.table] = step.head
        else:
            self.pending[task.table] = Pending(step)

    def task_case(self, task: Task) -> Case:
        """Return a task with the inputs that are there; one that will not be there is noted as a mistake."""
        inputs = {}
        for table in task.reads:
            head = self.heads.get(table) if table in self.steps else self.facts.head(table)
            if head is not None:
                inputs[table] = head
            elif table not in self.pending:
                self.mistakes.append(missing_input(self.flow, task, table, self.selected))
                self.pending[table] = Pending(Step(table, "full", "missing"))  # said once; what reads it is unknown
        return self.case(task, inputs)

    def case(self, task: Task, inputs: Mapping[TableName, Head]) -> Case:
        return Case(task, self.prints[task.table], inputs, self.branch, self.full_refresh, self.days)

    def is_whole(self, case: Case) -> bool:
        return len(case.inputs) == len(case.task.reads)

    def look_up(self, cases: Iterable[Case]) -> None:
        """Ask for the results of cases that have all inputs, each once."""
        asked = [(case.task.table, case.key) for case in cases if self.is_whole(case) and not case.forced]
        unknown = [pair for pair in asked if pair not in self.results]
        if unknown:
            found = self.facts.results(unknown)
            self.results.update((pair, found.get(pair)) for pair in unknown)
