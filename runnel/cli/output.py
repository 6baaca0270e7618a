"""What every command shares: its project, `--json`, and how it prints."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.settings import Settings

F = TypeVar("F", bound=Callable[..., None])


def command(name: str | None = None) -> Callable[[F], click.Command]:
    """Declare a subcommand with the options that all have."""

    def wrap(function: F) -> click.Command:
        shown = name or function.__name__.rstrip("_").replace("_", "-")
        with_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)
        return click.command(shown, context_settings={"help_option_names": ["-h", "--help"]})(with_json)

    return wrap


def chosen() -> dict[str, Any]:
    """Return what was given before the subcommand."""
    found: dict[str, Any] = click.get_current_context().find_root().obj or {}
    return found


def settings(overrides: Sequence[str] = ()) -> "Settings":
    """Return the settings of the project that the command was called in, or that `-C` names.

    `overrides` are what the command's own `--set` says; it wins over the one before the command.
    """
    from runnel.declare.settings import FILE, find_root, load

    given = chosen()
    named = given.get("project") or os.environ.get("RUNNEL_PROJECT")
    if named is not None and not (Path(named) / FILE).is_file():
        what = f"{named} is not a project: there is no {FILE} in it"
        raise Mistake("PROJECT_NOT_FOUND", what, fix="`runnel init DIR` makes one; check the folder's name")
    root = Path(named).absolute() if named is not None else find_root(Path())
    return load(root, env=given.get("env"), environ=os.environ, overrides=(*given.get("overrides", ()), *overrides))


def lake(*, moved: bool = False, adopt: bool = False, overrides: Sequence[str] = ()) -> "Lake":
    """Open the project's lake."""
    from runnel.client.lake import Lake

    return Lake(settings(overrides), moved=moved, adopt=adopt, tell=say, once=True)


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(value, default=_jsonable, ensure_ascii=False))


def _jsonable(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)


def say(text: str) -> None:
    """Tell a person what is going on, on standard error."""
    click.echo(text, err=True)


def width() -> int:
    """Return how many columns the terminal has."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


def grid(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> str:
    """Return rows as aligned text that fits the terminal: the widest column is cut where it must be.

    >>> print(grid(["a", "b"], [[1, "x"], [22, "y"]], right=[0]))
     a  b
     1  x
    22  y
    """
    cells = [[str(value) for value in row] for row in [headers, *rows]]
    widths = [max(len(row[at]) for row in cells) for at in range(len(headers))]
    while sum(widths) + 2 * (len(widths) - 1) > width() and max(widths) > 12:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(_line(row, widths, right) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    shown = []
    for at, (text, most) in enumerate(zip(row, widths, strict=True)):
        cut = text if len(text) <= most else text[: most - 1] + "…"
        shown.append(cut.rjust(most) if at in right else cut.ljust(most))
    return "  ".join(shown).rstrip()


def count(number: int | None, noun: str = "") -> str:
    """Return a number as people read it.

    >>> count(1204, "row"), count(1, "row"), count(None)
    ('1,204 rows', '1 row', '?')
    """
    if number is None:
        return "?"
    return f"{number:,}" + (f" {noun}{'' if number == 1 else 's'}" if noun else "")


def size(number: int | None) -> str:
    """Return a size in bytes as people read it.

    >>> size(512), size(1536), size(3 * 2**30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if number is None:
        return "?"
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{int(value)} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def when(stamp: str) -> str:
    """Return a stored time as people read it.

    >>> when("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00'
    """
    return stamp[:19].replace("T", " ")


def plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without the keys that have no value."""
    return {key: found for key, found in value.items() if found is not None}
