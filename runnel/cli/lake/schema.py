"""`runnel schema`."""

from typing import Any

import click

from runnel.cli.lake.file_options import file_options, list_used_options, read_file_formats
from runnel.cli.output import command, format_count, print_json, print_text


@command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@file_options
def schema(files: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print the schema of files, after the options that were given, to paste into a source.

    FILE may be a quoted glob. Types are inferred from all rows, as `runnel load` does it. See docs/load.md.
    """
    from runnel.connect.load.schema_inference import infer_file_schema
    from runnel.connect.load.suggest.suggested_options import format_keywords

    csv, document = read_file_formats("runnel schema", files, options)
    inferred = infer_file_schema(files, options["format"], csv, document)
    if as_json:
        columns = [{"name": name, "type": kind} for name, kind in inferred.columns]
        counts = {"files": inferred.files, "bad": inferred.bad_rows}
        caveats = inferred.suggested.list_caveats(is_source=False)
        suggested = {"suggested_options": dict(inferred.suggested.options), "caveats": caveats}
        print_json(
            {"schema": inferred.text, "columns": columns, **counts, "lacks_header": inferred.lacks_header, **suggested}
        )
        return
    used_options = list_used_options(options, csv)
    header = (("header", "false"),) if inferred.lacks_header else ()
    print_text(format_keywords((*used_options, *header, ("schema", inferred.text))))
    if inferred.lacks_header:
        print_text("the first line seems to be data: with --no-header, or header=False, it is a row", err=True)
    if not inferred.suggested.is_empty:
        print_text(inferred.suggested.describe_for_command(with_keywords=True), err=True)
    if inferred.bad_rows:
        print_text(f"{format_count(inferred.bad_rows, 'bad row')} did not count", err=True)
