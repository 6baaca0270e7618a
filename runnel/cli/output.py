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

from runnel.errors import Mistake
from runnel.text_tables import format_count as format_count  # re-exported: commands import them from this module
from runnel.text_tables import format_size as format_size
from runnel.text_tables import format_table as format_table
from runnel.text_tables import format_time as format_time
from runnel.text_tables import terminal_width as terminal_width
from runnel.visible_text import show_invisible

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


def print_text(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text for people; characters that a terminal would obey or hide are made visible."""
    click.echo(show_invisible(text), nl=nl, err=err)


def print_data(text: str) -> None:
    """Print data that is read by another program: exactly as it is, except on a terminal."""
    click.echo(show_invisible(text) if sys.stdout.isatty() else text)


def print_to_stderr(text: str) -> None:
    """Print a line for people on standard error."""
    print_text(text, err=True)


def confirm(question: str) -> None:
    """Ask the user to confirm; raise `click.Abort` if they don't."""
    click.confirm(show_invisible(question), abort=True)


def drop_none_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without the keys that have no value."""
    return {key: item for key, item in value.items() if item is not None}
