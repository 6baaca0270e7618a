"""Tables as JSON: size, columns, versions."""

from typing import TYPE_CHECKING, Any

from runnel.lake.commits import Commit, history

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store
    from runnel.names import TableName


def size_json(store: "Store", table: "TableName", location: str) -> dict[str, Any]:
    """Return a table with its size, from its own summary."""
    from runnel.lake.sizes import size_of
    from runnel.lake.tables import load

    one = size_of(load(store, location))
    return {"table": str(table), "rows": one.rows, "bytes": one.bytes, "files": one.files}


def table_json(store: "Store", table: "TableName", commit: Commit, versions: int) -> dict[str, Any]:
    """Return what is known of a table at a commit, with its newest versions."""
    from runnel.lake.tables import load

    version = store.versions(commit, [table])[table]
    metadata = load(store, version.location)
    schema = metadata.schema()
    made = store.db.read(lambda connection: history(connection, commit, table=table, limit=versions))
    return {
        "at": commit.id,
        **size_json(store, table, version.location),
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
