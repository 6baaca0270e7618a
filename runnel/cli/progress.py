"""Show progress on standard error: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from runnel.cli.output import print_text
from runnel.cli.rate_text import RateEstimate, format_duration
from runnel.model.progress import Progress
from runnel.visible_text import show_invisible

_EVERY_SECONDS = 5.0


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield a callback for the progress of long functions: (what, done, total); None if quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _report_with_bars() as report_progress:
            yield report_progress
    else:
        yield _report_with_lines()


@contextmanager
def _report_with_bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as ProgressBars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with ProgressBars(*columns, console=Console(stderr=True), transient=True) as bars:
        task_ids: dict[str, object] = {}
        estimates: dict[str, RateEstimate] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in task_ids:
                task_ids[what], estimates[what] = (
                    bars.add_task(show_invisible(what), total=total, left=""),
                    RateEstimate(),
                )
            seconds = estimates[what].update(what, done, total, time.monotonic())
            left = f"{format_duration(seconds)} left" if seconds is not None else ""
            bars.update(task_ids[what], completed=done, total=total, left=left)  # type: ignore[arg-type]

        yield report


def _report_with_lines() -> Progress:
    """Print a line every few seconds, so that a log file shows progress without filling up."""
    last_report_at = time.monotonic()

    def report(what: str, done: int, total: int | None) -> None:
        nonlocal last_report_at
        if time.monotonic() - last_report_at >= _EVERY_SECONDS:
            last_report_at = time.monotonic()
            print_text(f"{what}: {done:,}" + (f" of {total:,}" if total else ""), err=True)

    return report
