"""Show where the time of a run went, as a table with bars."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel.cli.output import format_size, terminal_width

if TYPE_CHECKING:
    from rich.text import Text

_PHASE_STYLES = {  # the letter of each phase, for output without colours, and its colour
    "wait": ("·", "bright_black"),
    "plan": ("p", "magenta"),
    "read": ("r", "blue"),
    "compute": ("c", "green"),
    "check": ("k", "yellow"),
    "write": ("w", "cyan"),
}
_TIMELINE_TEXTS = {
    "queue": "in the queue",
    "again": "until another write was published first",
    "plan": "planning",
    "spark": "until Spark started",
    "steps": "in steps",
    "verify": "verifying",
    "publish": "publishing",
}
_MAX_WIDTH, _MIN_BAR_WIDTH, _MAX_BAR_WIDTH, _MIN_NAME_WIDTH = 120, 10, 40, 12
_MIN_SKEW_TIMES = 3.0  # times the median: a longest task below that is not reported
_MIN_SKEW_SECONDS = 1.0


def show_time_report(
    steps: Sequence[Mapping[str, Any]], timeline: Mapping[str, float], spent: Mapping[str, float]
) -> None:
    """Print where the time of a run went, if that is known."""
    timed_steps = [step for step in steps if step.get("spent")]
    if not timed_steps:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=min(terminal_width(), _MAX_WIDTH), highlight=False, soft_wrap=False, file=sys.stdout)
    timeline_texts = [
        f"{_format_seconds(timeline[name])} s {text}"
        for name, text in _TIMELINE_TEXTS.items()
        if timeline.get(name, 0.0) >= 0.005
    ]
    console.print(
        Text(f"\nwhere its time went: {', '.join(timeline_texts)}" if timeline_texts else "\nwhere its time went")
    )
    phases = [
        phase for phase in _PHASE_STYLES if any(step["spent"].get(phase) for step in timed_steps) or spent.get(phase)
    ]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    free_width = console.width - sum(max(len(phase), 5) + 1 for phase in phases) - 1
    name_width = max(min(max(len(step["table"]) for step in timed_steps), free_width - _MIN_BAR_WIDTH), _MIN_NAME_WIDTH)
    bar_width = max(min(free_width - name_width, _MAX_BAR_WIDTH), _MIN_BAR_WIDTH)
    table.add_column("seconds", overflow="ellipsis", no_wrap=True, width=name_width)
    for phase in phases:
        table.add_column(Text(phase, style=_PHASE_STYLES[phase][1]), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=bar_width)
    scale = max(sum(step["spent"].values()) for step in timed_steps)
    for step in timed_steps:
        table.add_row(
            step["table"],
            *_format_cells(step["spent"], phases),
            _draw_bar(step["spent"], scale, bar_width, console.is_terminal),
        )
    table.add_row("all", *_format_cells(spent, phases), "", style="bold")
    console.print(table)
    for note in describe_spark_problems(timed_steps):
        console.print(Text(note))


def describe_spark_problems(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield notes about problems in Spark: spilled memory, and tasks that took far longer than others."""
    for step in steps:
        spark = step.get("spark") or {}
        if spark.get("spill_disk_bytes") or spark.get("spill_memory_bytes"):
            memory, disk = format_size(spark["spill_memory_bytes"]), format_size(spark["spill_disk_bytes"])
            yield f"spill: {step['table']} moved {memory} out of memory, {disk} on disk"
        skew = spark.get("skew") or {}
        if skew.get("times", 0.0) >= _MIN_SKEW_TIMES and skew["longest_seconds"] >= _MIN_SKEW_SECONDS:
            longest, median = _format_seconds(skew["longest_seconds"]), _format_seconds(skew["median_seconds"])
            yield f"skew: {step['table']} waited {longest} s for one task, half of its tasks took {median} s or less"


def _format_cells(spent: Mapping[str, float], phases: Sequence[str]) -> list[str]:
    return [_format_seconds(spent[phase]) if spent.get(phase, 0.0) >= 0.0005 else "" for phase in phases]


def _draw_bar(spent: Mapping[str, float], scale: float, length: int, is_terminal: bool) -> "Text":
    """Return a bar of a step's phases one after another, on the same scale for all steps."""
    from rich.text import Text

    bar_text, elapsed = Text(), 0.0
    for phase, (letter, colour) in _PHASE_STYLES.items():
        start, elapsed = elapsed, elapsed + spent.get(phase, 0.0)
        cells = round(elapsed / scale * length) - round(start / scale * length)
        is_block = is_terminal and phase != "wait"
        bar_text.append(("█" if is_block else letter) * cells, style=colour)
    return bar_text


def _format_seconds(seconds: float) -> str:
    """Return seconds for people.

    >>> _format_seconds(0.0123), _format_seconds(1.234), _format_seconds(59.96), _format_seconds(3725.4)
    ('0.012', '1.23', '60.0', '3725')
    """
    return (
        f"{seconds:.3f}"
        if seconds < 0.1
        else f"{seconds:.2f}"
        if seconds < 10
        else f"{seconds:.{int(seconds < 1000)}f}"
    )
