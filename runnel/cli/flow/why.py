"""`runnel why`."""

import click

from runnel.cli.output import command, open_lake, print_json, print_text


@command()
@click.argument("table", metavar="TABLE")
@click.option("--row", metavar="CONDITION", help='Where the rows come from that match, such as "order_id = 7".')
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
def why(table: str, row: str | None, ref: str, as_json: bool) -> None:
    """Show the provenance of a table: inputs, code, parameters, run, checks; with --row, of some of its rows."""
    with open_lake() as project_lake:
        provenance = project_lake.why(table, at=ref) if row is None else project_lake.why(table, row=row, at=ref)
    if as_json:
        print_json(provenance.json())
    else:
        print_text(str(provenance))
