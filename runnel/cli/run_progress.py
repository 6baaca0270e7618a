"""Show a run while it goes on: a live list on a terminal, plain lines elsewhere, both on standard error."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from runnel.cli.output import count
from runnel.cli.rate_text import pace
from runnel.run.results.run_result import Event, Watch

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_EVERY_SECONDS = 5.0


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Watch | None]:
    """Yield what a run reports to."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _live() as watch:
            yield watch
    else:
        yield _Lines().see


class _Lines:
    """One line for what starts, is tried again or ends, and now and then for what goes on."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def see(self, event: Event) -> None:
        name, now = str(event.table), time.monotonic()
        if event.kind == "start":
            self._began[name] = self._last[name] = now
        text = _text(event)
        if event.kind == "progress" and now - self._last.get(name, now) >= _EVERY_SECONDS:
            self._last[name] = now
            text = f"{name}: {_pace(event, now - self._began[name])}"
        if text:
            click.echo(text, err=True)


def _pace(event: Event, seconds: float) -> str:
    is_read = event.action == "ingest"
    return pace(event.text or "computing", event.done, event.total, seconds, "rows" if is_read else "parts")


def _text(event: Event) -> str | None:
    if event.kind == "note":
        return event.text
    if event.kind == "start":
        return f"{event.table}: {event.action}, {event.text}"
    if event.kind == "retry":
        return f"{event.table}: {event.text}"
    if event.kind == "end" and event.outcome is not None:
        done = event.outcome
        rows = f", {count(done.rows, 'row')}" if done.rows is not None else ""
        return f"{done.table}: {done.state}{rows}, {done.seconds:.1f} s"
    return None


@contextmanager
def _live() -> Iterator[Watch]:
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
        yield _Bars(bars).see


class _Bars:
    """One line for each step that is under way."""

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        self._known: dict[str, TaskID] = {}
        self._guard = threading.Lock()
        self._began: dict[str, float] = {}

    def see(self, event: Event) -> None:
        with self._guard:
            if event.kind == "note":
                self._bars.console.print(event.text, highlight=False)
                return
            name = str(event.table)
            if event.kind == "end":
                if name in self._known:
                    self._bars.remove_task(self._known.pop(name))
                return
            if name not in self._known:
                self._known[name] = self._bars.add_task(f"{name} {event.action}", total=None, note="")
                self._began[name] = time.monotonic()
            note = event.text if event.kind == "retry" else ""
            if event.kind == "progress":
                note = _pace(event, time.monotonic() - self._began[name])
            self._bars.update(self._known[name], completed=event.done, total=event.total, note=note)
