"""Format a plan as the text that `runnel plan` prints: no colour, aligned, for 80 columns by default.

Pure. The format is stable: tests compare the whole text.
"""

import re
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from runnel.errors import plural
from runnel.plan import reasons
from runnel.plan.steps import Plan, PlanStep
from runnel.text_tables import format_bytes

WIDTH = 80
_AMOUNT = re.compile(r"(?<=\d) (?=[A-Za-z])")
_UNBROKEN = "\u00a0"  # textwrap does not break lines here
_NARROWEST = 30  # if the column of reasons were narrower, each reason gets its own line
_EXPECTED = "~ expected: decided again when its inputs are ready"
_ANALYSED = "? analysed first: skipped if the task does not use what changed"


def format_plan(plan: Plan, *, all_steps: bool = False, width: int = WIDTH) -> str:
    """Format a plan for people, ending in a one-sentence summary.

    Skipped tables are only counted unless `all_steps` is set; one with an unusual reason is always listed.
    """
    steps = [
        step for step in plan.steps if all_steps or step.action != "skip" or step.reason not in reasons.QUIET_REASONS
    ]
    legend = [_EXPECTED] * any(step.is_expected for step in steps) + [_ANALYSED] * any(step.analyse for step in steps)
    notes = [line for note in plan.notes for line in _wrap_text(note, width, indent="  ")]
    parts = [_format_table(steps, width), legend, notes, _wrap_text(summarize_plan(plan), width, indent="  ")]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _format_table(steps: Sequence[PlanStep], width: int) -> list[str]:
    """Format the steps as lines. A long reason wraps in its column, or goes below if the column is too narrow."""
    if not steps:
        return []
    rows = [
        ["table", "action", "reads"],
        *([str(step.table), _format_action(step), _format_reads(step)] for step in steps),
    ]
    if not any(row[2] for row in rows[1:]):
        rows = [row[:2] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    indent = sum(widths) + 2 * len(widths)
    fits_beside = width - indent >= _NARROWEST
    lines = []
    for row, reason in zip(rows, ["why", *(step.reason for step in steps)], strict=True):
        cells = "  ".join(text.ljust(column_width) for text, column_width in zip(row, widths, strict=True))
        reason_lines = _wrap_text(reason, width - indent if fits_beside else width - 4)
        if fits_beside:
            lines += [f"{cells}  {reason_lines[0]}", *(" " * indent + line for line in reason_lines[1:])]
        else:
            lines += [cells.rstrip(), *(f"    {line}" for line in reason_lines)]
    return lines


def _wrap_text(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap a text into lines, keeping numbers and their units together."""
    unbroken_text = _AMOUNT.sub(_UNBROKEN, text)
    lines = wrap(unbroken_text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]


def _format_action(step: PlanStep) -> str:
    return ("~" if step.is_expected else "") + step.action + ("?" if step.analyse else "")


def _format_reads(step: PlanStep) -> str:
    return _format_amount(step.rows, step.bytes) if step.computes else ""


def _format_amount(rows: int | None, size_bytes: int | None) -> str:
    amounts = [plural(rows, "row")] if rows else []
    return ", ".join([*amounts, format_bytes(size_bytes)] if size_bytes else amounts)


def summarize_plan(plan: Plan) -> str:
    """Summarize a plan in one sentence."""
    counts_by_action = Counter(
        "compute" if step.computes and step.action != "ingest" else step.action for step in plan.steps
    )
    if not plan.work:
        return f"nothing to do: {counts_by_action['skip']:,} skipped" if plan.steps else "nothing to do"
    counts = (
        (counts_by_action["compute"], "to compute"),
        (counts_by_action["ingest"], "to ingest"),
        (counts_by_action["reuse"], "reused"),
    )
    phrases = [f"{count:,} {label}" for count, label in (*counts, (counts_by_action["skip"], "skipped")) if count]
    return "; ".join(
        part for part in (", ".join(phrases), _format_total(plan), "starts Spark" if plan.jvm else "") if part
    )


def _format_total(plan: Plan) -> str:
    """Format how much the plan reads; it is a lower bound if the amount of a step is unknown."""
    steps = [step for step in plan.steps if step.computes]
    amount = _format_amount(sum(step.rows or 0 for step in steps), sum(step.bytes or 0 for step in steps))
    is_lower_bound = any(step.bytes is None for step in steps)
    return f"reads {'at least' if is_lower_bound else 'about'} {amount}" if amount else ""
