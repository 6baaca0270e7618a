"""`runnel tables` and `runnel table`."""

from typing import TYPE_CHECKING, Any

import click

from runnel.cli.base import command, count, grid, lake, print_json, size, when
from runnel.lake.commits import history
from runnel.lake.sizes import Size, size_of
from runnel.lake.store import Store
from runnel.lake.tables import load
from runnel.names import TableName

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema


@command()
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
def tables(ref: str, as_json: bool) -> None:
    """List the tables, with their rows and sizes."""
    with lake() as opened:
        store = opened.store
        found = [(name, size_of(load(store, version.location))) for name, version in store.state(ref).items()]
    if as_json:
        print_json(
            [{"table": str(name), "rows": one.rows, "bytes": one.bytes, "files": one.files} for name, one in found]
        )
    elif not found:
        click.echo("no tables yet; `runnel load ods.orders FILE` makes one")
    else:
        rows = [[name, count(one.rows), size(one.bytes), count(one.files)] for name, one in found]
        click.echo(grid(["table", "rows", "size", "files"], rows, right=[1, 2, 3]))


@command()
@click.argument("name", metavar="NAME")
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=5, help="How many versions to show.")
def table(name: str, ref: str, limit: int, as_json: bool) -> None:
    """Show one table: schema, partitions, size, newest versions."""
    with lake() as opened:
        facts = _facts(opened.store, TableName.parse(name), ref, limit)
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


def _facts(store: Store, name: TableName, ref: str, limit: int) -> dict[str, Any]:
    commit = store.commit(ref)
    version = store.versions(commit, [name])[name]
    metadata = load(store, version.location)
    schema, measured = metadata.schema(), size_of(metadata)
    made = store.db.read(lambda connection: history(connection, commit, table=name, limit=limit))
    return {
        "table": str(name),
        "at": commit.id,
        **_size(measured),
        "partition": [_partition(field, schema) for field in metadata.spec().fields],
        "key": [part for part in metadata.properties.get("runnel.key", "").split(",") if part],
        "columns": [
            {"name": field.name, "type": str(field.field_type), "nullable": not field.required, "doc": field.doc}
            for field in schema.fields
        ],
        "versions": [{"commit": one.id, "at": one.at, "author": one.author, "message": one.message} for one in made],
        "metadata": version.location,
        "properties": dict(metadata.properties),
    }


def _partition(field: "PartitionField", schema: "Schema") -> str:
    column, transform = schema.find_column_name(field.source_id), str(field.transform)
    if transform == "identity":
        return str(column)
    kind, _, number = transform.rstrip("]").partition("[")
    return f"{kind}({number}, {column})" if number else f"{kind}({column})"


def _size(measured: Size) -> dict[str, int | None]:
    return {"rows": measured.rows, "bytes": measured.bytes, "files": measured.files}
