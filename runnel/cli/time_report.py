"""Where the time of a run went, as a table with bars."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel.cli.output import size, width

if TYPE_CHECKING:
    from rich.text import Text

_LOOKS = {  # how each phase is shown: a letter where there are no colours
    "wait": ("·", "bright_black"),
    "plan": ("p", "magenta"),
    "read": ("r", "blue"),
    "compute": ("c", "green"),
    "check": ("k", "yellow"),
    "write": ("w", "cyan"),
}
_LAPS = {
    "queue": "in the queue",
    "again": "until somebody else was faster",
    "plan": "planning",
    "spark": "until Spark was there",
    "steps": "in steps",
    "verify": "verifying",
    "publish": "publishing",
}
_WIDEST, _LEAST_BAR, _MOST_BAR, _LEAST_NAME = 120, 10, 40, 12
_UNEVEN = 3.0  # times the median: below that a longest task is nothing to tell
_LONG_SECONDS = 1.0


def show_spent(steps: Sequence[Mapping[str, Any]], timeline: Mapping[str, float], spent: Mapping[str, float]) -> None:
    """Print where the time of a run went, if that is known."""
    known = [step for step in steps if step.get("spent")]
    if not known:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=min(width(), _WIDEST), highlight=False, soft_wrap=False, file=sys.stdout)
    laps = [f"{_seconds(timeline[name])} s {told}" for name, told in _LAPS.items() if timeline.get(name, 0.0) >= 0.005]
    console.print(Text(f"\nwhere its time went: {', '.join(laps)}" if laps else "\nwhere its time went"))
    phases = [phase for phase in _LOOKS if any(step["spent"].get(phase) for step in known) or spent.get(phase)]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    room = console.width - sum(max(len(phase), 5) + 1 for phase in phases) - 1
    names = max(min(max(len(step["table"]) for step in known), room - _LEAST_BAR), _LEAST_NAME)
    bar = max(min(room - names, _MOST_BAR), _LEAST_BAR)
    table.add_column("seconds", overflow="ellipsis", no_wrap=True, width=names)
    for phase in phases:
        table.add_column(Text(phase, style=_LOOKS[phase][1]), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=bar)
    scale = max(sum(step["spent"].values()) for step in known)
    for step in known:
        table.add_row(
            step["table"], *_cells(step["spent"], phases), _bar(step["spent"], scale, bar, console.is_terminal)
        )
    table.add_row("all", *_cells(spent, phases), "", style="bold")
    console.print(table)
    for note in notes(known):
        console.print(Text(note))


def notes(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is worth telling of Spark's work: what was spilled, and tasks that took far longer than others."""
    for step in steps:
        spark = step.get("spark") or {}
        if spark.get("spill_disk_bytes") or spark.get("spill_memory_bytes"):
            memory, disk = size(spark["spill_memory_bytes"]), size(spark["spill_disk_bytes"])
            yield f"spill: {step['table']} moved {memory} out of memory, {disk} on disk"
        skew = spark.get("skew") or {}
        if skew.get("times", 0.0) >= _UNEVEN and skew["longest_seconds"] >= _LONG_SECONDS:
            longest, median = _seconds(skew["longest_seconds"]), _seconds(skew["median_seconds"])
            yield f"skew: {step['table']} waited {longest} s for one task, half of its tasks took {median} s or less"


def _cells(spent: Mapping[str, float], phases: Sequence[str]) -> list[str]:
    return [_seconds(spent[phase]) if spent.get(phase, 0.0) >= 0.0005 else "" for phase in phases]


def _bar(spent: Mapping[str, float], scale: float, length: int, is_terminal: bool) -> "Text":
    """Return the phases of a step one after another, on one scale for all steps."""
    from rich.text import Text

    found, so_far = Text(), 0.0
    for phase, (letter, colour) in _LOOKS.items():
        start, so_far = so_far, so_far + spent.get(phase, 0.0)
        cells = round(so_far / scale * length) - round(start / scale * length)
        is_block = is_terminal and phase != "wait"
        found.append(("█" if is_block else letter) * cells, style=colour)
    return found


def _seconds(seconds: float) -> str:
    """Return seconds as people read them.

    >>> _seconds(0.0123), _seconds(1.234), _seconds(59.96), _seconds(3725.4)
    ('0.012', '1.23', '60.0', '3725')
    """
    return (
        f"{seconds:.3f}"
        if seconds < 0.1
        else f"{seconds:.2f}"
        if seconds < 10
        else f"{seconds:.{int(seconds < 1000)}f}"
    )
