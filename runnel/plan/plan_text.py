"""A plan as the text that `runnel plan` prints. Plain: no colour, aligned, made for 80 columns.

Pure. The form is stable: tests compare it as a whole.
"""

import re
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from runnel.plan import reasons
from runnel.plan.reasons import counted
from runnel.plan.steps import Plan, Step

WIDTH = 80
_AMOUNT = re.compile(r"(?<=\d) (?=[A-Za-z])")
_UNBROKEN = "\u00a0"  # textwrap breaks no line here
_NARROWEST = 30  # a column of reasons narrower than this is hard to read: they get lines of their own
_EXPECTED = "~ expected: decided again when its inputs are there"
_ANALYSED = "? analysed first: skipped where the task does not use what changed"


def plan_text(plan: Plan, *, all_steps: bool = False, width: int = WIDTH) -> str:
    """Return a plan for people, ending in one sentence that sums it up.

    Skipped tables are only counted unless `all_steps` asks for them; one with an unusual reason is always shown.
    """
    steps = [step for step in plan.steps if all_steps or step.action != "skip" or step.reason not in reasons.QUIET]
    legend = [_EXPECTED] * any(step.is_expected for step in steps) + [_ANALYSED] * any(step.analyse for step in steps)
    notes = [line for note in plan.notes for line in _wrapped(note, width, indent="  ")]
    parts = [_table(steps, width), legend, notes, _wrapped(summary(plan), width, indent="  ")]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def size(number: int) -> str:
    """Return a number of bytes.

    >>> size(512), size(1536), size(3 * 2**30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _table(steps: Sequence[Step], width: int) -> list[str]:
    """Return the steps as lines. A long reason goes on in its column, or below where that is too narrow."""
    if not steps:
        return []
    rows = [["table", "action", "reads"], *([str(step.table), _action(step), _reads(step)] for step in steps)]
    if not any(row[2] for row in rows[1:]):
        rows = [row[:2] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = sum(widths) + 2 * len(widths)
    is_beside = width - indent >= _NARROWEST
    lines = []
    for row, reason in zip(rows, ["why", *(step.reason for step in steps)], strict=True):
        cells = "  ".join(text.ljust(most) for text, most in zip(row, widths, strict=True))
        told = _wrapped(reason, width - indent if is_beside else width - 4)
        if is_beside:
            lines += [f"{cells}  {told[0]}", *(" " * indent + line for line in told[1:])]
        else:
            lines += [cells.rstrip(), *(f"    {line}" for line in told)]
    return lines


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in lines, with numbers and their units together."""
    whole = _AMOUNT.sub(_UNBROKEN, text)
    lines = wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]


def _action(step: Step) -> str:
    return ("~" if step.is_expected else "") + step.action + ("?" if step.analyse else "")


def _reads(step: Step) -> str:
    return _amount(step.rows, step.bytes) if step.computes else ""


def _amount(rows: int | None, size_bytes: int | None) -> str:
    told = [counted(rows, "row")] if rows else []
    return ", ".join([*told, size(size_bytes)] if size_bytes else told)


def summary(plan: Plan) -> str:
    """Return a plan as one sentence."""
    number = Counter("compute" if step.computes and step.action != "ingest" else step.action for step in plan.steps)
    if not plan.work:
        return f"nothing to do: {number['skip']:,} skipped" if plan.steps else "nothing to do"
    counts = ((number["compute"], "to compute"), (number["ingest"], "to ingest"), (number["reuse"], "reused"))
    told = [f"{count:,} {what}" for count, what in (*counts, (number["skip"], "skipped")) if count]
    return "; ".join(part for part in (", ".join(told), _total(plan), "starts Spark" if plan.jvm else "") if part)


def _total(plan: Plan) -> str:
    """Return how much is read; a step whose amount is unknown makes it a lower bound."""
    steps = [step for step in plan.steps if step.computes]
    amount = _amount(sum(step.rows or 0 for step in steps), sum(step.bytes or 0 for step in steps))
    is_bound = any(step.bytes is None for step in steps)
    return f"reads {'at least' if is_bound else 'about'} {amount}" if amount else ""
