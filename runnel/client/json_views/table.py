"""Tables as values and as JSON: size, columns, versions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.history.commits import Commit, history
from runnel.lake.iceberg import table_properties

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class ColumnFacts:
    """A column, with its Iceberg type."""

    name: str
    type: str
    nullable: bool
    doc: str | None


@dataclass(frozen=True)
class Made:
    """A commit that changed a table."""

    commit: str
    at: str
    author: str
    message: str


@dataclass(frozen=True)
class TableFacts:
    """What is known of a table at the commit `at`; a size is None where the engine that wrote it did not say."""

    at: str
    table: str
    rows: int | None
    bytes: int | None
    files: int | None
    partition: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[ColumnFacts, ...]
    versions: tuple[Made, ...]
    metadata: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "TableFacts":
        """Return what JSON tells of a table."""
        told = {name: found[name] for name in ("at", "table", "rows", "bytes", "files", "metadata", "properties")}
        columns = tuple(ColumnFacts(**{name: one[name] for name in _COLUMN}) for one in found["columns"])
        versions = tuple(Made(**{name: one[name] for name in _MADE}) for one in found["versions"])
        partition, key = tuple(found["partition"]), tuple(found["key"])
        return cls(**told, partition=partition, key=key, columns=columns, versions=versions)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        lists = {name: list(getattr(self, name)) for name in ("partition", "key")}
        columns, versions = ([asdict(one) for one in found] for found in (self.columns, self.versions))
        return {**vars(self), **lists, "columns": columns, "versions": versions, "properties": dict(self.properties)}


_COLUMN, _MADE = tuple(ColumnFacts.__dataclass_fields__), tuple(Made.__dataclass_fields__)


def size_json(store: "Store", table: "TableName", location: str) -> dict[str, Any]:
    """Return a table with its size, from its own summary."""
    from runnel.lake.iceberg.table_metadata import load
    from runnel.lake.iceberg.table_size import size_of

    one = size_of(load(store, location))
    return {"table": str(table), "rows": one.rows, "bytes": one.bytes, "files": one.files}


def table_facts(store: "Store", table: "TableName", commit: Commit, versions: int) -> TableFacts:
    """Return what is known of a table at a commit, with its newest versions."""
    from runnel.lake.iceberg.table_metadata import load

    version = store.versions(commit, [table])[table]
    metadata = load(store, version.location)
    schema = metadata.schema()
    made = store.db.read(lambda connection: history(connection, commit, table=table, limit=versions))
    return TableFacts(
        at=commit.id,
        **size_json(store, table, version.location),
        partition=tuple(_partition(field, schema) for field in metadata.spec().fields),
        key=tuple(part for part in metadata.properties.get(table_properties.KEY, "").split(",") if part),
        columns=tuple(
            ColumnFacts(field.name, str(field.field_type), not field.required, field.doc) for field in schema.fields
        ),
        versions=tuple(Made(one.id, one.at, one.author, one.message) for one in made),
        metadata=version.location,
        properties=dict(metadata.properties),
    )


def _partition(field: "PartitionField", schema: "Schema") -> str:
    column, transform = schema.find_column_name(field.source_id), str(field.transform)
    if transform == "identity":
        return str(column)
    kind, _, number = transform.rstrip("]").partition("[")
    return f"{kind}({number}, {column})" if number else f"{kind}({column})"
