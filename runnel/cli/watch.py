"""Show a run while it goes on: a live list on a terminal, plain lines elsewhere, both on standard error."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from runnel.cli.base import count
from runnel.run.report import Event, Watch

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Watch | None]:
    """Yield what a run reports to."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _live() as watch:
            yield watch
    else:
        yield _line


def _line(event: Event) -> None:
    """Print one line for what starts, is tried again or ends."""
    text = _text(event)
    if text:
        click.echo(text, err=True)


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
        self._started = time.monotonic()

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
            note = event.text if event.kind == "retry" else f"{event.done:,} of {event.total:,}" if event.total else ""
            self._bars.update(self._known[name], completed=event.done, total=event.total, note=note)
