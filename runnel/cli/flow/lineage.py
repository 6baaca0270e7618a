"""`runnel lineage`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, lake, print_json
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.project.inspection.lineage import Lineage


@command()
@click.argument("table", metavar="TABLE")
@click.option("--up", is_flag=True, help="Only what it is made from.")
@click.option("--down", is_flag=True, help="Only what is made from it.")
def lineage(table: str, up: bool, down: bool, as_json: bool) -> None:
    """Show the graph around a table: what it is made from, and what is made from it."""
    with lake() as opened:
        found = opened.lineage(table, up=up or not down, down=down or not up)
    if as_json:
        print_json(found.json())
        return
    click.echo(f"{found.table}  {found.makers[found.table]}")
    if up or not down:
        _show("made from", found, found.reads)
    if down or not up:
        _show("read by", found, found.readers)


def _show(title: str, found: "Lineage", edges: "Mapping[TableName, tuple[TableName, ...]]") -> None:
    lines = list(_tree(found, edges, found.table, 2, set()))
    click.echo(f"\n{title}" if lines else f"\n{title} nothing")
    for line in lines:
        click.echo(line)


def _tree(
    found: "Lineage",
    edges: "Mapping[TableName, tuple[TableName, ...]]",
    table: TableName,
    indent: int,
    shown: set[TableName],
) -> Iterator[str]:
    """Yield a line for each table; one that was shown before is not followed again."""
    for one in edges.get(table, ()):
        again = one in shown and bool(edges.get(one))
        yield f"{' ' * indent}{one}  {'(above)' if again else found.makers[one]}"
        if not again:
            shown.add(one)
            yield from _tree(found, edges, one, indent + 2, shown)
