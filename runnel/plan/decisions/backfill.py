"""What to do for a task whose slices of some days are asked for, although nothing changed. Pure: asks the facts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.plan import reasons
from runnel.plan.date_range import Asked, Dated, Days
from runnel.plan.slices import Slices, is_most, union

if TYPE_CHECKING:
    from runnel.names import TableName
    from runnel.plan.decisions.expected import Pending
    from runnel.plan.decisions.task import Case
    from runnel.plan.facts import Facts, Head, Result
    from runnel.plan.steps import Step


def dated(case: "Case", head: "Head", facts: "Facts") -> Dated | None:
    """Return the slices that are asked for, or None where the task has no slices by date."""
    by = case.task.options.by
    return facts.dated(case.task.table, head, by, case.days) if by and case.days is not None else None


def whole_reason(days: Days) -> str:
    """Return why a task is computed in full."""
    return f"{reasons.asked(days)}; it has no slices by date"


def with_days(
    usual: "Step", days: Days, base: "Result", found: Dated, held: tuple[int | None, int | None]
) -> "Step | str":
    """Return a step by slices with those that are asked for, or why all is computed; `usual` is what changed anyway.

    `held` are the rows and bytes of all inputs.
    """
    changed = usual.slices.keys if usual.slices is not None else () if not usual.changed else None
    keys = None if changed is None or found.keys is None else union([changed, found.keys])
    number = len(keys) if keys is not None else found.number
    why = _told(usual, days, number, base.slices)
    if number is not None and is_most(number, base.slices):
        return f"{why}: that is most of them"
    share = min(1.0, number / base.slices) if number is not None and base.slices else None
    rows, size = (int(one * share) if one is not None and share is not None else None for one in held)
    return replace(
        usual,
        action="slices",
        reason=why,
        head=None,
        known=None,
        base=base,
        slices=Slices(keys, base.slices),
        rows=rows,
        bytes=size,
        asked=Asked(days, found.column),
    )


def expected(case: "Case", usual: "Step", pending: "Mapping[TableName, Pending]", facts: "Facts") -> "Step":
    """Return the expected step for a task some of whose inputs are still to be computed; `usual` is it without days.

    An input that is computed because it was asked for most likely stays as it is.
    """
    from runnel.plan.decisions.base_result import unfit
    from runnel.plan.decisions.task import whole

    table, days = case.task.table, case.days
    head = facts.head(table)
    base = facts.made(table, head) if head is not None else None
    if days is None or head is None or base is None or unfit(case, head, base) is not None:
        return usual
    found = dated(case, head, facts)
    if found is None:
        return _unsliced(usual, head, days, pending)
    if any(each.step.action == "full" and each.step.asked is None for each in pending.values()):
        return usual
    before = [(above, facts.head(above)) for above in pending]
    held = whole([*case.inputs.items(), *before], facts)
    plain = replace(usual, changed=(), slices=None)
    step = with_days(plain, days, base, found, held)
    if isinstance(step, str):
        return replace(usual, action="full", reason=step, slices=None, rows=held[0], bytes=held[1], asked=Asked(days))
    return replace(step, key=None, is_expected=True)


def _unsliced(usual: "Step", head: "Head", days: Days, pending: "Mapping[TableName, Pending]") -> "Step":
    if days.is_start:
        return replace(usual, action="full", reason=whole_reason(days), slices=None, asked=Asked(days))
    if all(each.step.asked is not None for each in pending.values()):
        why = "computed in full with the first chunk; again only if what it reads changes"
        return replace(usual, action="skip", reason=why, head=head, slices=None, rows=None, bytes=None)
    return usual


def _told(usual: "Step", days: Days, number: int | None, of: int | None) -> str:
    count = f"{number:,} of {max(number, of):,}, " if number is not None and of is not None else ""
    also = f"; {usual.reason}" if usual.changed else ""
    return f"{count}{reasons.asked(days)}{also}"
