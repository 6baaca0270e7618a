"""What to do for one task whose inputs are all there, and why. The same when planning and again during a run.

Pure: asks the facts, changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from runnel.declare.model.flow import Task
from runnel.names import TableName
from runnel.plan import reasons
from runnel.plan.date_range import Asked, Days
from runnel.plan.decisions.backfill import dated, whole_reason, with_days
from runnel.plan.decisions.base_result import (
    change_size,
    changed_inputs,
    is_aside,
    unfit,
    unheld_results,
    with_nearest_inputs,
)
from runnel.plan.decisions.slices import by_slices
from runnel.plan.facts import Facts, Head, Movement, Result
from runnel.plan.fingerprint.fingerprints import Fingerprint
from runnel.plan.missing_inputs import refuse_missing
from runnel.plan.result_key import task_key
from runnel.plan.slices import in_full_reason
from runnel.plan.steps import Step

COPIES_SHARE = 0.2  # past this share of changed rows those without a key are not taken out one by one


@dataclass(frozen=True)
class Case:
    """A task with all that its decision depends on, but for what the lake knows."""

    task: Task
    fingerprint: Fingerprint
    inputs: Mapping[TableName, Head]
    branch: str | None = None
    full_refresh: bool = False
    days: Days | None = None

    @cached_property
    def key(self) -> str:
        """Return the key of the result; only for a case with all inputs."""
        return task_key(self.task, self.fingerprint.digest, self.inputs)

    @property
    def forced(self) -> str | None:
        """Return why it is computed whatever is known, or None."""
        if self.task.options.volatile:
            return reasons.VOLATILE
        return reasons.REFRESH if self.full_refresh else None


def decide_task(
    task: Task,
    fingerprint: Fingerprint,
    inputs: Mapping[TableName, Head | None],
    facts: Facts,
    *,
    branch: str | None = None,
    full_refresh: bool = False,
    days: Days | None = None,
) -> Step:
    """Return the step for a task all of whose inputs are known. None is an input that does not exist: a mistake.

    Reasons name the branch of a known result where it is not `branch`.
    """
    refuse_missing(task, [table for table in task.reads if inputs.get(table) is None])
    heads = {table: head for table, head in inputs.items() if head is not None}
    case = Case(task, fingerprint, heads, branch, full_refresh, days)
    asked = (task.table, case.key)
    return decide(case, None if case.forced else facts.results([asked]).get(asked), facts)


def decide(case: Case, known: Result | None, facts: Facts) -> Step:
    """Return the step for a case, given the result that is known for its key."""
    if case.forced:
        return _full(case, facts, case.forced)
    if known is not None and case.days is None:
        return settled(case, known, facts)
    head = facts.head(case.task.table)
    base = facts.made(case.task.table, head) if head is not None else None
    reason = unfit(case, head, base)
    if case.days is not None and reason is None and base is not None and head is not None:
        return _again(case, known, head, base, case.days, facts)
    if reason is not None or base is None:
        usual = _full(case, facts, reason or reasons.NOT_YET)
    else:
        usual = _from(case, base, facts)
        if in_full_reason(case.task, base.why_whole):
            return usual  # so it would be from any other result of the same code
    return usual if case.days is not None else _with_least_change(case, usual, facts)


def _with_least_change(case: Case, usual: Step, facts: Facts) -> Step:
    """Return a step that continues a result which the table does not hold, if `usual` computes everything."""
    if usual.analyse or usual.action != "full":  # files say how much they hold, not how few rows of it changed
        return usual
    best = usual
    for result in unheld_results(case, facts):
        step = _from(case, result, facts)
        if step.action in ("rows", "slices") and _is_less(case, step, best, facts):
            best = replace(step, reason=f"{step.reason}; {reasons.starting_from(result, case.branch)}", is_unheld=True)
    return best


def _is_less(case: Case, step: Step, other: Step, facts: Facts) -> bool:
    """Tell whether a step has less of a change to follow than another one."""
    if other.action == "full" or other.base is None or step.base is None:
        return other.action == "full"
    return change_size(case, step.base, facts) < change_size(case, other.base, facts)


def _again(case: Case, known: Result | None, head: Head, base: Result, days: Days, facts: Facts) -> Step:
    """Return the step for a case whose slices of some days are computed although nothing changed."""
    found = dated(case, head, facts) if in_full_reason(case.task, base.why_whole) is None else None
    if found is None:
        return (
            replace(_full(case, facts, whole_reason(days)), asked=Asked(days))
            if days.is_start
            else decide(replace(case, days=None), known, facts)
        )
    usual = Step(case.task.table, "skip", reasons.UNCHANGED, key=case.key, head=head)
    if changed_inputs(case, base):
        usual = _from(case, base, facts)
    if usual.action == "full":
        return replace(usual, analyse=False)
    made = with_days(usual, days, base, found, whole(case.inputs.items(), facts))
    return replace(_full(case, facts, made), asked=Asked(days)) if isinstance(made, str) else made


def settled(case: Case, known: Result, facts: Facts) -> Step:
    """Return the step for a case whose result is known: the table holds it already, or it is put in place."""
    table, head = case.task.table, facts.head(case.task.table)
    if head is not None and head.content == known.head.content and is_aside(case.task, known, facts):
        return Step(table, "skip", reasons.UNCHANGED, key=case.key, head=head, known=known)
    why = reasons.known_since(known, case.branch)
    if head is not None and facts.made(table, head) is None:
        why = f"{reasons.outside(table)}; {why}"
    return Step(table, "reuse", why, key=case.key, head=known.head, known=known)


def whole(heads: Iterable[tuple[TableName, Head | None]], facts: Facts) -> tuple[int | None, int | None]:
    """Return how many rows and bytes these versions hold, or None where one is not known."""
    sizes = [facts.size(table, head) if head is not None and head.location else None for table, head in heads]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None, None
    return sum(size.rows for size in known), sum(size.bytes for size in known)


def _from(case: Case, base: Result, facts: Facts) -> Step:
    """Return the step for a case that differs from `base` in its inputs only."""
    base = with_nearest_inputs(case, base, facts)
    task, changed = case.task, changed_inputs(case, base)
    moves = {table: facts.movement(table, base.inputs[table], case.inputs[table]) for table in changed}
    why = reasons.joined([reasons.moved(table, move) for table, move in moves.items()])
    if not any(_moved_rows(move) for move in moves.values()):
        return _full(case, facts, why, base=base, changed=changed, analyse=True)
    if not is_aside(task, base, facts):  # the same rows, made on another branch, where others were set aside
        return _full(case, facts, f"{why}; {task.quarantine} holds other rows than were set aside with it")
    if reason := in_full_reason(task, base.why_whole):
        return _full(case, facts, f"{why}; {reason}", base=base, changed=changed)
    if task.options.by and not (task.options.rowwise and all(_is_append(move) for move in moves.values())):
        return _by_slices(case, base, facts, moves, why)
    if not task.options.rowwise or not all(_is_by_rows(move) for move in moves.values()):
        return _full(case, facts, why, base=base, changed=changed)
    lost = any(move.files_removed for move in moves.values())
    rows = sum(move.rows_added + move.rows_removed for move in moves.values())
    held, _ = whole(case.inputs.items(), facts)
    if lost and not task.options.key and not _is_by_copies(task, rows, held):
        return _full(case, facts, f"{why}, and the task has no key", base=base, changed=changed)
    if held is not None and rows > held:
        return _full(case, facts, f"{why}; that is more than the {reasons.counted(held, 'row')} to read in full")
    return Step(
        task.table,
        "rows",
        f"{why}; {_how_removed(task)}" if lost else why,
        key=case.key,
        base=base,
        changed=changed,
        rows=rows,
        bytes=sum(move.bytes_added + move.bytes_removed for move in moves.values()),
    )


def _is_by_copies(task: Task, rows: int, held: int | None) -> bool:
    """Tell whether rows are taken out by all of their values: the whole table is looked through, so few have to go.

    Rows that checks set aside are not in the table, and nobody knows which of them were made of which.
    """
    if held is None or rows > COPIES_SHARE * held:
        return False
    return not any(check.on_fail in ("drop", "quarantine") for check in task.checks)


def _how_removed(task: Task) -> str:
    return f"by key {', '.join(task.options.key)}" if task.options.key else "without a key, by all values of a row"


def _by_slices(case: Case, base: Result, facts: Facts, moves: Mapping[TableName, Movement], why: str) -> Step:
    found = by_slices(case.task, case.inputs, base, moves, facts, whole(case.inputs.items(), facts))
    if isinstance(found, str):
        return _full(case, facts, f"{why}; {found}" if found else why)
    return Step(
        case.task.table,
        "slices",
        found.reason or f"{why}; its slices are found first",
        key=case.key,
        base=base,
        changed=tuple(moves),
        rows=found.rows,
        bytes=found.bytes,
        slices=found.slices,
    )


def _full(
    case: Case,
    facts: Facts,
    reason: str,
    *,
    base: Result | None = None,
    changed: tuple[TableName, ...] = (),
    analyse: bool = False,
) -> Step:
    rows, size = whole(case.inputs.items(), facts)
    return Step(
        case.task.table,
        "full",
        reason,
        key=case.key,
        base=base,
        changed=changed,
        rows=rows,
        bytes=size,
        analyse=analyse,
    )


def _moved_rows(move: Movement) -> bool:
    """Tell whether rows may differ. A new column alone leaves them, for tasks that don't use it."""
    return not move.is_known or bool(move.files_added or move.files_removed or move.deletes or move.columns_changed)


def _is_append(move: Movement) -> bool:
    """Tell whether whole files came, and nothing else."""
    return _is_by_rows(move) and not move.files_removed


def _is_by_rows(move: Movement) -> bool:
    """Tell whether the change is whole files with the columns that the table had."""
    return move.is_known and not (move.deletes or move.columns_changed or move.columns_added)
