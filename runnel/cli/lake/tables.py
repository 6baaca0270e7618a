"""`runnel tables` and `runnel table`."""

import click

from runnel.cli.output import command, count, grid, lake, print_json, size, when
from runnel.client.json_views.table import size_json


@command()
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
def tables(ref: str, as_json: bool) -> None:
    """List the tables, with their rows and sizes."""
    with lake() as opened:
        store = opened.store
        found = [size_json(store, name, version.location) for name, version in store.state(ref).items()]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no tables yet; `runnel load ods.orders FILE` makes one")
    else:
        rows = [[one["table"], count(one["rows"]), size(one["bytes"]), count(one["files"])] for one in found]
        click.echo(grid(["table", "rows", "size", "files"], rows, right=[1, 2, 3]))


@command()
@click.argument("name", metavar="NAME")
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=5, help="How many versions to show.")
def table(name: str, ref: str, limit: int, as_json: bool) -> None:
    """Show one table: schema, partitions, size, newest versions."""
    with lake() as opened:
        facts = opened.table(name, at=ref, versions=limit).json()
    if as_json:
        print_json(facts)
        return
    click.echo(
        f"{facts['table']}  {count(facts['rows'], 'row')}, {size(facts['bytes'])} in {count(facts['files'], 'file')}"
    )
    if facts["partition"]:
        click.echo(f"partitioned by {', '.join(facts['partition'])}")
    if facts["key"]:
        click.echo(f"key {', '.join(facts['key'])}")
    columns = [
        [one["name"], one["type"], "" if one["nullable"] else "required", one["doc"] or ""] for one in facts["columns"]
    ]
    click.echo("\n" + grid(["column", "type", "", ""], columns))
    versions = [[one["commit"][:8], when(one["at"]), one["author"], one["message"]] for one in facts["versions"]]
    click.echo("\n" + grid(["version", "at (UTC)", "author", "message"], versions))
    click.echo(f"\nmetadata {facts['metadata']}")
