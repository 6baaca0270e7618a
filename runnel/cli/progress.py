"""Progress on standard error: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Progress = Callable[[str, int, int | None], None]
_EVERY_SECONDS = 5.0


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield what long functions report to: (what, done, total)."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, object] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done, total=total)  # type: ignore[arg-type]

        yield report


def _lines() -> Progress:
    """Report now and then, so that a log file shows that it goes on without filling up."""
    last = time.monotonic()

    def report(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY_SECONDS:
            last = time.monotonic()
            click.echo(f"{what}: {done:,}" + (f" of {total:,}" if total else ""), err=True)

    return report
