"""`runnel tables` and `runnel table`."""

import click

from runnel.cli.output import (
    command,
    format_count,
    format_size,
    format_table,
    format_time,
    open_lake,
    print_json,
    print_text,
)
from runnel.client.json_views.table import size_json


@command()
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
def tables(ref: str, as_json: bool) -> None:
    """List the tables, with their rows and sizes."""
    with open_lake() as project_lake:
        store = project_lake.store
        table_sizes = [size_json(store, name, version.location) for name, version in store.state(ref).items()]
    if as_json:
        print_json(table_sizes)
    elif not table_sizes:
        print_text("no tables yet; `runnel load ods.orders FILE` creates one")
    else:
        rows = [
            [entry["table"], format_count(entry["rows"]), format_size(entry["bytes"]), format_count(entry["files"])]
            for entry in table_sizes
        ]
        print_text(format_table(["table", "rows", "size", "files"], rows, right_aligned=[1, 2, 3]))


@command()
@click.argument("name", metavar="NAME")
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=5, help="Maximum number of versions.")
def table(name: str, ref: str, limit: int, as_json: bool) -> None:
    """Show one table: schema, partitions, size, newest versions."""
    with open_lake() as project_lake:
        facts = project_lake.table(name, at=ref, versions=limit).json()
    if as_json:
        print_json(facts)
        return
    print_text(
        f"{facts['table']}  {format_count(facts['rows'], 'row')}, "
        f"{format_size(facts['bytes'])} in {format_count(facts['files'], 'file')}"
    )
    if facts["partition"]:
        print_text(f"partitioned by {', '.join(facts['partition'])}")
    if facts["key"]:
        print_text(f"key {', '.join(facts['key'])}")
    columns = [
        [entry["name"], entry["spark_type"], "" if entry["nullable"] else "required", entry["doc"] or ""]
        for entry in facts["columns"]
    ]
    print_text("\n" + format_table(["column", "type", "", ""], columns))
    versions = [
        [entry["commit"][:8], format_time(entry["at"]), entry["author"], entry["message"]]
        for entry in facts["versions"]
    ]
    print_text("\n" + format_table(["version", "at (UTC)", "author", "message"], versions))
    print_text(f"\nmetadata {facts['metadata']}")
