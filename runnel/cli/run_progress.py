"""Show the progress of a run on standard error: a live list on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.cli.output import format_count, print_text
from runnel.cli.rate_text import RateEstimate
from runnel.run.results.run_result import Event, ProgressCallback
from runnel.visible_text import show_invisible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_EVERY_SECONDS = 5.0


@contextmanager
def watch_run(*, quiet: bool = False) -> Iterator[ProgressCallback | None]:
    """Yield a callback for the events of a run; None if quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _show_live_bars() as watch:
            yield watch
    else:
        yield _LineReporter().report_event


class _LineReporter:
    """Prints a line when a step starts, is retried or ends, and every few seconds while it runs."""

    def __init__(self) -> None:
        self._estimates = defaultdict[str, RateEstimate](RateEstimate)
        self._last_report_at: dict[str, float] = {}

    def report_event(self, event: Event) -> None:
        name, now = str(event.table), time.monotonic()
        if event.kind == "start":
            self._last_report_at[name] = now
        text = _describe_event(event)
        if event.kind == "progress":
            progress_text = _describe_progress(event, self._estimates[name], now)
            if now - self._last_report_at.setdefault(name, now) >= _EVERY_SECONDS:
                self._last_report_at[name] = now
                text = f"{name}: {progress_text}"
        if text:
            print_text(text, err=True)


def _describe_progress(event: Event, estimate: RateEstimate, now: float) -> str:
    noun = "rows" if event.action == "ingest" else "parts"
    return estimate.describe(event.text or "computing", event.done, event.total, now, noun)


def _describe_event(event: Event) -> str | None:
    if event.kind == "note":
        return event.text
    if event.kind == "start":
        return f"{event.table}: {event.action}, {event.text}"
    if event.kind == "retry":
        return f"{event.table}: {event.text}"
    if event.kind == "end" and event.outcome is not None:
        result = event.outcome
        rows = f", {format_count(result.rows, 'row')}" if result.rows is not None else ""
        return f"{result.table}: {result.state}{rows}, {result.seconds:.1f} s"
    return None


@contextmanager
def _show_live_bars() -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _BarReporter(bars).report_event


class _BarReporter:
    """Shows a live line for each running step."""

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        self._task_ids: dict[str, TaskID] = {}
        self._lock = threading.Lock()
        self._estimates = defaultdict[str, RateEstimate](RateEstimate)

    def report_event(self, event: Event) -> None:
        with self._lock:
            if event.kind == "note":
                self._bars.console.print(show_invisible(event.text), highlight=False)
                return
            name = str(event.table)
            if event.kind == "end":
                if name in self._task_ids:
                    self._bars.remove_task(self._task_ids.pop(name))
                return
            if name not in self._task_ids:
                self._task_ids[name] = self._bars.add_task(f"{name} {event.action}", total=None, note="")
                self._estimates.pop(name, None)
            note = event.text if event.kind == "retry" else ""
            if event.kind == "progress":
                note = _describe_progress(event, self._estimates[name], time.monotonic())
            self._bars.update(self._task_ids[name], completed=event.done, total=event.total, note=show_invisible(note))
