"""Tables as values and as JSON: size, columns, versions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.history.commits import Commit, read_history
from runnel.lake.iceberg import table_properties

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class ColumnFacts:
    """A column, with its type in Iceberg (`type`) and as users write it in a schema (`spark_type`)."""

    name: str
    type: str
    nullable: bool
    doc: str | None
    spark_type: str


@dataclass(frozen=True)
class TableCommit:
    """A commit that changed a table."""

    commit: str
    at: str
    author: str
    message: str


@dataclass(frozen=True)
class TableFacts:
    """The facts about a table at the commit `at`; a size is None if the engine that wrote it did not record it."""

    at: str
    table: str
    rows: int | None
    bytes: int | None
    files: int | None
    partition: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[ColumnFacts, ...]
    versions: tuple[TableCommit, ...]
    metadata: str
    properties: Mapping[str, str]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TableFacts":
        """Build the facts about a table from their JSON."""
        fields = {name: body[name] for name in ("at", "table", "rows", "bytes", "files", "metadata", "properties")}
        columns = tuple(ColumnFacts(**{name: item[name] for name in _COLUMN_FIELDS}) for item in body["columns"])
        versions = tuple(TableCommit(**{name: item[name] for name in _VERSION_FIELDS}) for item in body["versions"])
        partition, key = tuple(body["partition"]), tuple(body["key"])
        return cls(**fields, partition=partition, key=key, columns=columns, versions=versions)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        lists = {name: list(getattr(self, name)) for name in ("partition", "key")}
        columns, versions = ([asdict(item) for item in values] for values in (self.columns, self.versions))
        return {**vars(self), **lists, "columns": columns, "versions": versions, "properties": dict(self.properties)}


_COLUMN_FIELDS, _VERSION_FIELDS = tuple(ColumnFacts.__dataclass_fields__), tuple(TableCommit.__dataclass_fields__)


def size_json(store: "Store", table: "TableName", location: str) -> dict[str, Any]:
    """Return a table with its size, from its snapshot summary."""
    from runnel.lake.iceberg.table_metadata import load_metadata
    from runnel.lake.iceberg.table_size import read_size

    size = read_size(load_metadata(store, location))
    return {"table": str(table), "rows": size.rows, "bytes": size.bytes, "files": size.files}


def read_table_facts(store: "Store", table: "TableName", commit: Commit, versions: int) -> TableFacts:
    """Return the facts about a table at a commit, with its newest versions."""
    from runnel.lake.iceberg.schema_diff import describe_type
    from runnel.lake.iceberg.table_metadata import load_metadata

    version = store.versions(commit, [table])[table]
    metadata = load_metadata(store, version.location)
    schema = metadata.schema()
    commits = store.db.read(lambda connection: read_history(connection, commit, table=table, limit=versions))
    return TableFacts(
        at=commit.id,
        **size_json(store, table, version.location),
        partition=tuple(_describe_partition(field, schema) for field in metadata.spec().fields),
        key=tuple(part for part in metadata.properties.get(table_properties.KEY, "").split(",") if part),
        columns=tuple(
            ColumnFacts(
                field.name, str(field.field_type), not field.required, field.doc, describe_type(field.field_type)
            )
            for field in schema.fields
        ),
        versions=tuple(
            TableCommit(table_commit.id, table_commit.at, table_commit.author, table_commit.message)
            for table_commit in commits
        ),
        metadata=version.location,
        properties=dict(metadata.properties),
    )


def _describe_partition(field: "PartitionField", schema: "Schema") -> str:
    column, transform = schema.find_column_name(field.source_id), str(field.transform)
    if transform == "identity":
        return str(column)
    kind, _, number = transform.rstrip("]").partition("[")
    return f"{kind}({number}, {column})" if number else f"{kind}({column})"
