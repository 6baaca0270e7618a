"""Share what every command needs: the project, `--json`, and how to print."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runnel.errors import Mistake, plural

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.settings import Settings

F = TypeVar("F", bound=Callable[..., None])


def command(name: str | None = None) -> Callable[[F], click.Command]:
    """Declare a subcommand with the options that all subcommands have."""

    def wrap(function: F) -> click.Command:
        command_name = name or function.__name__.rstrip("_").replace("_", "-")
        with_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)
        return click.command(command_name, context_settings={"help_option_names": ["-h", "--help"]})(with_json)

    return wrap


def read_global_options() -> dict[str, Any]:
    """Return the options that were given before the subcommand."""
    options: dict[str, Any] = click.get_current_context().find_root().obj or {}
    return options


def load_project_settings(overrides: Sequence[str] = ()) -> "Settings":
    """Load the settings of the project in the current folder, or of the one that `-C` names.

    `overrides` are the values of the command's own `--set`; they win over a `--set` before the command.
    """
    from runnel.declare.settings import SETTINGS_FILE, find_root, load_settings

    options = read_global_options()
    project_folder = options.get("project") or os.environ.get("RUNNEL_PROJECT")
    if project_folder is not None and not (Path(project_folder) / SETTINGS_FILE).is_file():
        what = f"{project_folder} is not a project: there is no {SETTINGS_FILE} in it"
        raise Mistake("PROJECT_NOT_FOUND", what, fix="`runnel init DIR` makes one; check the folder's name")
    root = Path(project_folder).absolute() if project_folder is not None else find_root(Path())
    return load_settings(
        root, env=options.get("env"), environ=os.environ, overrides=(*options.get("overrides", ()), *overrides)
    )


def open_lake(*, moved: bool = False, adopt: bool = False, overrides: Sequence[str] = (), once: bool = True) -> "Lake":
    """Open the project's lake; `once` says that the process ends after one operation."""
    from runnel.client.lake import Lake
    from runnel.project.spark_provider import SparkProvider

    settings = load_project_settings(overrides)
    spark_provider = SparkProvider(settings, print_to_stderr, once=once)
    return Lake(settings, moved=moved, adopt=adopt, spark_provider=spark_provider)


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(value, default=_to_json_value, ensure_ascii=False))


def _to_json_value(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)


def print_to_stderr(text: str) -> None:
    """Print a line for people on standard error."""
    click.echo(text, err=True)


def terminal_width() -> int:
    """Return how many columns the terminal has."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


def format_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right_aligned: Sequence[int] = ()) -> str:
    """Return rows as aligned text that fits the terminal: the widest columns are cut if necessary.

    >>> print(format_table(["a", "b"], [[1, "x"], [22, "y"]], right_aligned=[0]))
     a  b
     1  x
    22  y
    """
    cells = [[_format_cell(value) for value in row] for row in [headers, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    while sum(widths) + 2 * (len(widths) - 1) > terminal_width() and max(widths) > 12:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(_format_row(row, widths, right_aligned) for row in cells)


def _format_cell(value: object) -> str:
    r"""Return a value on one line: a line end or a tab in it is shown as it would be typed in a string.

    >>> _format_cell("a\nb"), _format_cell(1)
    ('a\\nb', '1')
    """
    return str(value).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _format_row(row: Sequence[str], widths: Sequence[int], right_aligned: Sequence[int]) -> str:
    cells = []
    for column, (text, column_width) in enumerate(zip(row, widths, strict=True)):
        cut = text if len(text) <= column_width else text[: column_width - 1] + "…"
        cells.append(cut.rjust(column_width) if column in right_aligned else cut.ljust(column_width))
    return "  ".join(cells).rstrip()


def format_count(number: int | None, noun: str = "") -> str:
    """Return a number for people, with a noun.

    >>> format_count(1204, "row"), format_count(1, "row"), format_count(None)
    ('1,204 rows', '1 row', '?')
    """
    if number is None:
        return "?"
    return plural(number, noun) if noun else f"{number:,}"


def format_size(number: int | None) -> str:
    """Return a number of bytes for people.

    >>> format_size(512), format_size(1536), format_size(3 * 2**30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    if number is None:
        return "?"
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{int(value)} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_time(stamp: str) -> str:
    """Return a stored time for people.

    >>> format_time("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00'
    """
    return stamp[:19].replace("T", " ")


def drop_none_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without the keys that have no value."""
    return {key: item for key, item in value.items() if item is not None}
