"""What a task will most likely need, while one of its inputs is still to be computed.

Pure. Decided again, with the same facts and the inputs there, during the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.names import TableName
from runnel.plan import reasons
from runnel.plan.decisions.base_result import changed_inputs, unfit, unheld_results
from runnel.plan.decisions.task import Case, whole
from runnel.plan.facts import Arrivals, Facts, Result
from runnel.plan.slices import Slices, expressions, in_full_reason, is_reference
from runnel.plan.steps import Step


@dataclass(frozen=True)
class Pending:
    """A table whose version is not there yet: the step that makes it, and what arrives where it is a source."""

    step: Step
    arrivals: Arrivals | None = None

    @property
    def reason(self) -> str:
        """Return what happens to the table, as a reason for who reads it."""
        if self.arrivals is None:
            return f"{self.step.table} {'may be' if self.step.analyse else 'is'} computed"
        arrives = self.arrivals.new or self.arrivals.changed
        return f"{self.step.table}{' gets' if arrives else ':'} {reasons.arrived(self.arrivals)}"

    @property
    def only_adds(self) -> bool:
        """Tell whether no row that was there goes away, as far as one can say."""
        if self.arrivals is not None:
            return not (self.arrivals.changed or self.arrivals.gone)
        return self.step.action == "rows"


def expect_task(case: Case, pending: Mapping[TableName, Pending], facts: Facts) -> Step:
    """Return the expected step for a task; `case` has the inputs that are there, `pending` the others."""
    table = case.task.table
    head = facts.head(table)
    base = facts.made(table, head) if head is not None and not case.forced else None
    reason, start = case.forced or unfit(case, head, base), ""
    if reason is not None and not case.forced and (left := next(unheld_results(case, facts), None)) is not None:
        base, reason, start = left, None, f"; {reasons.starting_from(left, case.branch)}"
    if reason is not None or base is None:
        return _full(case, pending, facts, reason or reasons.NOT_YET)
    changed = changed_inputs(case, base)
    moves = [reasons.moved(each, facts.movement(each, base.inputs[each], case.inputs[each])) for each in changed]
    why = reasons.joined([*(each.reason for each in pending.values()), *moves])
    if whole := in_full_reason(case.task, base.why_whole):
        return _full(case, pending, facts, f"{why}; {whole}")
    if case.task.options.by and not _concerns_all(case, base, pending, changed, facts):
        return Step(
            table,
            "slices",
            f"{why}; its slices are found first{start}",
            base=base,
            changed=(*pending, *changed),
            is_expected=True,
            slices=Slices(None, base.slices),
        )
    if changed or not _is_by_rows(case, pending):
        return _full(case, pending, facts, why)
    return Step(table, "rows", why + start, base=base, changed=tuple(pending), is_expected=True)


def _is_by_rows(case: Case, pending: Mapping[TableName, Pending]) -> bool:
    options = case.task.options
    if not options.rowwise or any(each.step.action == "full" for each in pending.values()):
        return False
    return bool(options.key) or all(each.only_adds for each in pending.values())


def _concerns_all(
    case: Case, base: Result, pending: Mapping[TableName, Pending], changed: Sequence[TableName], facts: Facts
) -> bool:
    """Tell whether all slices are likely to be computed: an input that names none changes, or one changes whole."""
    task = case.task
    for table in (*pending, *changed):
        if is_reference(task, table):
            continue
        whole = table in pending and pending[table].step.action == "full" and not pending[table].step.analyse
        if whole or expressions(task, table, facts.columns(table, base.inputs[table])) is None:
            return True
    return False


def _full(case: Case, pending: Mapping[TableName, Pending], facts: Facts, reason: str) -> Step:
    """Return a full computation, sized by the inputs as they are now."""
    before = [(table, facts.head(table)) for table in pending]
    rows, size = whole([*case.inputs.items(), *before], facts)
    return Step(case.task.table, "full", reason, rows=rows, bytes=size, is_expected=True)
