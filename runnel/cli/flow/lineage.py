"""`runnel lineage`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, open_lake, print_json, print_text
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.project.inspection.lineage import Lineage


@command()
@click.argument("table", metavar="TABLE")
@click.option("--up", is_flag=True, help="Only the tables that it is made from.")
@click.option("--down", is_flag=True, help="Only the tables that are made from it.")
def lineage(table: str, up: bool, down: bool, as_json: bool) -> None:
    """Show the graph around a table: what it is made from, and what is made from it."""
    with open_lake() as project_lake:
        graph = project_lake.lineage(table, up=up or not down, down=down or not up)
    if as_json:
        print_json(graph.json())
        return
    print_text(f"{graph.table}  {graph.makers[graph.table]}")
    if up or not down:
        _show_tree("made from", graph, graph.reads)
    if down or not up:
        _show_tree("read by", graph, graph.readers)


def _show_tree(title: str, graph: "Lineage", edges: "Mapping[TableName, tuple[TableName, ...]]") -> None:
    lines = list(_format_tree(graph, edges, graph.table, 2, set()))
    print_text(f"\n{title}" if lines else f"\n{title} nothing")
    for line in lines:
        print_text(line)


def _format_tree(
    graph: "Lineage",
    edges: "Mapping[TableName, tuple[TableName, ...]]",
    table: TableName,
    indent: int,
    visited: set[TableName],
) -> Iterator[str]:
    """Yield a line for each table; a table that was already shown is not expanded again."""
    for neighbor in edges.get(table, ()):
        is_repeated = neighbor in visited and bool(edges.get(neighbor))
        yield f"{' ' * indent}{neighbor}  {'(above)' if is_repeated else graph.makers[neighbor]}"
        if not is_repeated:
            visited.add(neighbor)
            yield from _format_tree(graph, edges, neighbor, indent + 2, visited)
