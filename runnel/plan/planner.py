"""Make a plan: decide for every selected table what to do and why, level by level through the graph.

Pure: reads the facts, changes nothing. Results are looked up for many tasks at once: first for all tasks as if nothing
had changed, then for those of a level whose inputs have changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Flow, Task, log_table_of
from runnel.errors import Mistake
from runnel.model.date_range import DateRange
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from runnel.plan.decisions.backfill import expect_backfill
from runnel.plan.decisions.change_log import decide_change_log
from runnel.plan.decisions.expected import PendingTable, expect_task
from runnel.plan.decisions.source import decide_source
from runnel.plan.decisions.stream import decide_stream
from runnel.plan.decisions.task import TaskCase, decide_case, reuse_or_skip
from runnel.plan.facts import Facts
from runnel.plan.fingerprint.fingerprints import Fingerprint
from runnel.plan.graph import Graph
from runnel.plan.missing_inputs import describe_missing_input, describe_missing_log
from runnel.plan.steps import Plan, PlanStep

_SPARK_ACTIONS = ("rows", "slices", "full", "stream")


@dataclass(frozen=True)
class PlanScope:
    """Which tables to plan, and whether to compute them even if nothing changed: all rows, or those of some days."""

    selected: frozenset[TableName]
    full_refresh: bool = False
    days: DateRange | None = None


def make_plan(
    flow: Flow,
    facts: Facts,
    fingerprints: Callable[[Task], Fingerprint],
    *,
    branch: str,
    commit: str,
    scope: PlanScope,
) -> Plan:
    """Plan the steps of the selected tables; the other tables are read at their current versions.

    `fingerprints` is called once for each selected task. All missing inputs are raised at once.
    """
    planner = _Planner(flow, facts, fingerprints, branch, scope)
    levels = [[table for table in level if table in scope.selected] for level in Graph(flow).levels]
    planner.look_up_current_results(table for level in levels for table in level if table in flow.tasks)
    for level in levels:
        planner.plan_level(level)
    if planner.mistakes:
        raise ProjectMistakes(planner.mistakes)
    steps = tuple(planner.steps[table] for level in levels for table in level)
    return Plan(branch, commit, steps, jvm=any(step.analyse or step.action in _SPARK_ACTIONS for step in steps))


@dataclass
class _Planner:
    """The state of making one plan. `heads` has the tables of known content, `pending` those not computed yet."""

    flow: Flow
    facts: Facts
    fingerprints: Callable[[Task], Fingerprint]
    branch: str
    scope: PlanScope
    task_fingerprints: dict[TableName, Fingerprint] = field(default_factory=dict)
    heads: dict[TableName, TableVersion] = field(default_factory=dict)
    pending: dict[TableName, PendingTable] = field(default_factory=dict)
    steps: dict[TableName, PlanStep] = field(default_factory=dict)
    results: dict[tuple[TableName, str], TaskResult | None] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def look_up_current_results(self, tables: Iterable[TableName]) -> None:
        """Look up the results of every task on its current inputs, the only look-up if everything is skipped."""
        cases = []
        for table in tables:
            task = self.flow.tasks[table]
            self.task_fingerprints[table] = self.fingerprints(task)
            heads = {above: self.facts.head(above) for above in task.input_tables}
            cases.append(self.build_case(task, {above: head for above, head in heads.items() if head is not None}))
        self.look_up_results(cases)

    def plan_level(self, level: Iterable[TableName]) -> None:
        """Decide the steps of a level's tables; those of earlier levels are decided already."""
        cases = []
        for table in level:
            if table in self.flow.tasks:
                cases.append(self.build_task_case(self.flow.tasks[table]))
            else:
                self.plan_source(table)
        self.look_up_results(cases)
        for case in cases:
            self.plan_task(case)

    def plan_source(self, table: TableName) -> None:
        if isinstance(self.flow.sources[table].origin, Changes):
            self.plan_change_log(table)
            return
        try:
            step, changes = decide_source(self.flow.sources[table], self.facts)
        except Mistake as mistake:
            self.mistakes.append(mistake)
            step, changes = PlanStep(table, "ingest", mistake.what), None
        self.steps[table] = step
        if step.head is not None:
            self.heads[table] = step.head
        if step.action == "ingest" and not (step.head and step.head.location):
            self.pending[table] = PendingTable(step, changes)

    def plan_change_log(self, table: TableName) -> None:
        """Decide the step of a table with a change log, after the log's own; a log that is not selected stays as is."""
        source, log_table = self.flow.sources[table], log_table_of(table)
        log = self.heads.get(log_table) if log_table in self.steps else self.facts.head(log_table)
        pending = self.pending.get(log_table)
        if log is None and pending is None:
            self.mistakes.append(describe_missing_log(source, log_table))
        step = decide_change_log(source, log, pending.reason if pending else None, self.facts)
        step = self.steps[table] = replace(
            step, needs=tuple(upstream for upstream in step.needs if upstream in self.steps)
        )
        if step.head is not None:
            self.heads[table] = step.head
        if step.head is None or not step.head.location:
            self.pending[table] = PendingTable(step)

    def plan_stream(self, case: TaskCase) -> None:
        """Decide the step of a stream. Steps that read its table are decided again after it has run."""
        task = case.task
        step = decide_stream(task, case.inputs, self.pending.keys() & set(task.input_tables), self.facts)
        step = self.steps[task.table] = replace(
            step, needs=tuple(upstream for upstream in task.input_tables if upstream in self.steps)
        )
        if step.head is not None:
            self.heads[task.table] = step.head
        else:
            self.pending[task.table] = PendingTable(step)

    def plan_task(self, case: TaskCase) -> None:
        task = case.task
        if task.options.stream:
            self.plan_stream(case)
            return
        existing_result = self.results.get((task.table, case.key)) if self.has_all_inputs(case) else None
        pending = {table: self.pending[table] for table in task.input_tables if table in self.pending}
        if not pending:
            step = decide_case(case, existing_result, self.facts)
        elif existing_result is not None and not case.forced_reason and case.days is None:
            step = reuse_or_skip(case, existing_result, self.facts)
        else:
            available_inputs = {table: head for table, head in case.inputs.items() if table not in pending}
            step = expect_task(self.build_case(task, available_inputs), pending, self.facts)
            if case.days is not None and not case.forced_reason:
                step = expect_backfill(self.build_case(task, available_inputs), step, pending, self.facts)
        needs = tuple(table for table in task.input_tables if table in self.steps)
        is_expected = bool(pending) or any(self.steps[table].is_expected for table in needs)
        step = self.steps[task.table] = replace(step, needs=needs, is_expected=is_expected)
        if step.head is not None:
            self.heads[task.table] = step.head
        else:
            self.pending[task.table] = PendingTable(step)

    def build_task_case(self, task: Task) -> TaskCase:
        """Return the case of a task with the inputs that exist; record a mistake for each one that never will."""
        inputs = {}
        for table in task.input_tables:
            head = self.heads.get(table) if table in self.steps else self.facts.head(table)
            if head is not None:
                inputs[table] = head
            elif table not in self.pending:
                self.mistakes.append(describe_missing_input(self.flow, task, table, self.scope.selected))
                self.pending[table] = PendingTable(PlanStep(table, "full", "missing"))  # report it only once
        return self.build_case(task, inputs)

    def build_case(self, task: Task, inputs: Mapping[TableName, TableVersion]) -> TaskCase:
        fingerprint, scope = self.task_fingerprints[task.table], self.scope
        return TaskCase(task, fingerprint, inputs, self.branch, scope.full_refresh, scope.days)

    def has_all_inputs(self, case: TaskCase) -> bool:
        return len(case.inputs) == len(case.task.input_tables)

    def look_up_results(self, cases: Iterable[TaskCase]) -> None:
        """Look up the results of cases that have all inputs, each once."""
        lookup_keys = [
            (case.task.table, case.key) for case in cases if self.has_all_inputs(case) and not case.forced_reason
        ]
        missing_keys = [pair for pair in lookup_keys if pair not in self.results]
        if missing_keys:
            results = self.facts.results(missing_keys)
            self.results.update((pair, results.get(pair)) for pair in missing_keys)
