"""`runnel load`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runnel.cli.flow.sinks import deliver_after_command
from runnel.cli.lake.file_options import file_options, read_file_formats
from runnel.cli.output import command, format_count, format_size, open_lake, print_json, print_text
from runnel.cli.progress import show_progress
from runnel.errors import Mistake
from runnel.names import TableName, quote_value

if TYPE_CHECKING:
    from runnel.connect.load.load import LoadResult


@command()
@click.argument("table", metavar="TABLE")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option(
    "--schema", default=None, metavar="TYPES", help='Column types, instead of inferred ones: "id long, day date".'
)
@click.option(
    "--partition", multiple=True, metavar="COLUMN", help="For a new table: partition by day, month(ts), bucket(16, id)."
)
@click.option("--key", multiple=True, metavar="COLUMN", help="For a new table: columns that identify a row, for diffs.")
@click.option("--replace", is_flag=True, help="Replace all rows of the table instead of adding.")
@click.option("--in-place", is_flag=True, help="Register Parquet files where they are, without copying.")
@click.option(
    "--on-new-column",
    type=click.Choice(["add", "ignore", "stop"]),
    default="add",
    show_default=True,
    help="What to do with columns that the table lacks.",
)
@click.option(
    "--on-bad", type=click.Choice(["stop", "drop"]), default="stop", show_default=True, help="What to do with bad rows."
)
@click.option(
    "--missing-columns",
    type=click.Choice(["stop", "null"]),
    default="stop",
    show_default=True,
    help="What to do if files lack columns of --schema.",
)
@file_options
@click.option("-m", "--message", default=None, help="Message of the commit.")
def load(
    table: str,
    files: tuple[str, ...],
    branch: str,
    schema: str | None,
    partition: tuple[str, ...],
    key: tuple[str, ...],
    replace: bool,
    in_place: bool,
    on_new_column: str,
    on_bad: str,
    missing_columns: str,
    message: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Add data by hand from CSV, JSON, Parquet, Avro, ORC, XML and other files, all or nothing.

    FILE may be a quoted glob. A table that does not exist is created. See docs/load.md.
    """
    from runnel.connect.load.load import LoadOptions
    from runnel.project.execution.load import load as load_files

    _check_order(table, files)
    csv, document = read_file_formats("runnel load", files, options)
    load_options = LoadOptions(
        branch=branch,
        format=options["format"],
        schema=schema,
        partition=partition,
        key=key,
        on_new_column=on_new_column,
        on_bad=on_bad,
        replace=replace,
        in_place=in_place,
        missing_columns=missing_columns,
        message=message,
        csv=csv,
        document=document,
    )
    with open_lake() as project_lake:
        with show_progress(quiet=as_json) as report_progress:
            result = load_files(project_lake, TableName.parse(table), files, load_options, report_progress)
        if not as_json:
            _show_result(table, result)
        deliveries = deliver_after_command(project_lake, branch, quiet=as_json) if result.commit else ()
    if as_json:
        facts = {"rows": result.rows, "files": result.files, "bytes": result.bytes, "created": result.created}
        dropped = {"dropped": result.dropped, "new_columns": list(result.new_columns)}
        summary = {"table": table, "branch": branch, "commit": _commit_id(result), **facts, **dropped}
        place = {"place": result.place.json()} if result.place is not None else {}
        print_json({**summary, **place, "sinks": [delivery.json() for delivery in deliveries]})


def _check_order(table: str, files: tuple[str, ...]) -> None:
    """Raise if a file stands where the table belongs, and a table where its files belong."""
    if len(files) == 1 and Path(table).exists() and not Path(files[0]).exists() and _is_table_name(files[0]):
        what = f"{quote_value(table)} is a file, not a table name: the table comes first, then its files"
        raise Mistake("NAME_TABLE", what, fix=f"runnel load {files[0]} {shlex.quote(table)}")


def _is_table_name(text: str) -> bool:
    try:
        TableName.parse(text)
    except Mistake:
        return False
    return True


def _show_result(table: str, result: "LoadResult") -> None:
    word = "created" if result.created else "loaded"
    commit_text = f"commit {result.commit.id[:8]}" if result.commit else "nothing new, no commit"
    print_text(
        f"{word} {table}: {format_count(result.rows, 'row')} from {format_count(result.files, 'file')} "
        f"({format_size(result.bytes)}), {commit_text}"
    )
    if result.place is not None:
        print_text(f"files were read {result.place.describe()}")
    if result.new_columns:
        print_text(f"new columns: {', '.join(result.new_columns)}")
    if not result.suggested.is_empty and result.commit:
        undo = f"`runnel revert {result.commit.id[:8]}` undoes the load; then load it again with them"
        print_text(f"{result.suggested.describe_for_command()}: {undo}", err=True)
    if result.dropped:
        print_text(f"dropped {format_count(result.dropped, 'bad row')}", err=True)


def _commit_id(result: "LoadResult") -> str | None:
    return result.commit.id if result.commit else None
