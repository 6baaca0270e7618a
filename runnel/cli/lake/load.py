"""`runnel load`."""

from typing import TYPE_CHECKING

import click

from runnel.cli.flow.sinks import hand_on
from runnel.cli.output import command, count, lake, print_json, size
from runnel.cli.progress import progress
from runnel.declare.options.file_formats import FORMATS
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.connect.load.load import Loaded


@command()
@click.argument("table", metavar="TABLE")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default=None,
    help="By default from the file's name.",
)
@click.option("--schema", default=None, metavar="TYPES", help='Types instead of inferred ones: "id long, day date".')
@click.option("--partition", multiple=True, metavar="COLUMN", help="For a new table: day, month(ts), bucket(16, id).")
@click.option("--key", multiple=True, metavar="COLUMN", help="For a new table: what identifies a row, for diffs.")
@click.option("--replace", is_flag=True, help="Replace all rows of the table instead of adding.")
@click.option("--in-place", is_flag=True, help="Register Parquet files where they are, without copying.")
@click.option("--on-new-column", type=click.Choice(["add", "ignore", "stop"]), default="add", show_default=True)
@click.option(
    "--on-bad", type=click.Choice(["stop", "drop"]), default="stop", show_default=True, help="What to do with bad rows."
)
@click.option("--delimiter", default=None, help="CSV: what separates columns; by default from the ending.")
@click.option("--no-header", is_flag=True, help="CSV: the first line is data.")
@click.option(
    "--null", "null_text", default="", metavar="TEXT", help="CSV: what stands for no value; empty by default."
)
@click.option("--quote", default='"', show_default=True, help="CSV: what quotes values.")
@click.option("--encoding", default="utf-8", show_default=True, help="How text is encoded.")
@click.option("--records", default=None, metavar="PATH", help="JSON: where the rows stand, such as data.items.")
@click.option("--row-tag", default=None, metavar="NAME", help="XML: which element is a row.")
@click.option("-m", "--message", default=None, help="What the commit says.")
def load(
    table: str,
    files: tuple[str, ...],
    branch: str,
    format_: str | None,
    schema: str | None,
    partition: tuple[str, ...],
    key: tuple[str, ...],
    replace: bool,
    in_place: bool,
    on_new_column: str,
    on_bad: str,
    delimiter: str | None,
    no_header: bool,
    null_text: str,
    quote: str,
    encoding: str,
    records: str | None,
    row_tag: str | None,
    message: str | None,
    as_json: bool,
) -> None:
    """Add data by hand: CSV, JSON, Parquet, Avro, ORC, XML ..., all of it or nothing.

    Globs are fine, quoted. An undeclared table is created. See docs/load.md.
    """
    from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
    from runnel.connect.load.load import load as load_files

    csv = CsvOptions(delimiter=delimiter, header=not no_header, null=null_text, quote=quote, encoding=encoding)
    with lake() as opened:
        with progress(quiet=as_json) as report:
            done = load_files(
                opened.store,
                TableName.parse(table),
                files,
                branch=branch,
                format=format_,
                schema=schema,
                partition=partition,
                key=key,
                on_new_column=on_new_column,
                on_bad=on_bad,
                replace=replace,
                in_place=in_place,
                message=message,
                csv=csv,
                document=DocumentOptions(records, row_tag, encoding),
                progress=report,
            )
        if not as_json:
            _show(table, done)
        sent = hand_on(opened, branch, quiet=as_json) if done.commit else ()
    if as_json:
        facts = {"rows": done.rows, "files": done.files, "bytes": done.bytes, "created": done.created}
        dropped = {"dropped": done.dropped, "new_columns": list(done.new_columns)}
        told = {"table": table, "branch": branch, "commit": _id(done), **facts, **dropped}
        print_json({**told, "sinks": [one.json() for one in sent]})


def _show(table: str, done: "Loaded") -> None:
    word = "created" if done.created else "loaded"
    where = f"commit {done.commit.id[:8]}" if done.commit else "nothing new, no commit"
    click.echo(
        f"{word} {table}: {count(done.rows, 'row')} from {count(done.files, 'file')} ({size(done.bytes)}), {where}"
    )
    if done.new_columns:
        click.echo(f"new columns: {', '.join(done.new_columns)}")
    if done.dropped:
        click.echo(f"dropped {count(done.dropped, 'bad row')}", err=True)


def _id(done: "Loaded") -> str | None:
    return done.commit.id if done.commit else None
