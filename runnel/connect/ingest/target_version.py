"""The version of a source's table that rows are written for: created, or evolved from the one that is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids

from runnel.connect.iceberg_types import bare, field_of
from runnel.connect.load import schema_updates
from runnel.connect.load.column_matching import Choice
from runnel.connect.load.partition_spec import same_partitions, spec_of
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError
from runnel.lake.iceberg import table_metadata, table_properties

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from runnel.lake.store import Store


@dataclass(frozen=True)
class Target:
    """What data files are written for: `metadata` is `location` with `updates` applied."""

    location: str
    metadata: "TableMetadata"
    updates: "tuple[TableUpdate, ...]" = ()

    @property
    def undeclared(self) -> str:
        """Return the columns that only the files name, as text."""
        return self.metadata.properties.get(table_properties.UNDECLARED, "")


def created(store: "Store", source: Source, choices: Sequence[Choice], before: str | None) -> Target:
    """Create the table for what was chosen, or just as declared; properties are those that `before` had."""
    schema = schema_updates.new_schema(choices) if choices else _declared(source)
    kept = table_metadata.load(store, before).properties if before else {}
    kept = {key: value for key, value in kept.items() if key not in (table_properties.KEY, table_properties.UNDECLARED)}
    spec = spec_of(source.partition, schema)
    location, metadata = table_metadata.create(
        store, source.table, schema, spec=spec, properties={**kept, **_properties(source, schema)}
    )
    return Target(location, metadata)


def evolved(store: "Store", source: Source, choices: Sequence[Choice], base: str) -> Target:
    """Return the version that is there with the columns and properties that are needed."""
    metadata = table_metadata.load(store, base)
    if not same_partitions(metadata.spec(), spec_of(source.partition, metadata.schema())):
        parts = ", ".join(f"{part.transform}({part.name})" for part in metadata.spec().fields) or "not at all"
        what = f"`{source.table}` is partitioned otherwise than its source says: {parts}"
        fix = "declare the partition that it has; it changes only where all rows can be read again"
        raise Mistake("SOURCE_PARTITION", what, at=str(source.place), fix=fix)
    updates = schema_updates.schema_updates(store, source.table, base, choices)
    metadata = schema_updates.evolved(metadata, updates)
    more = schema_updates.property_updates(metadata, _properties(source, metadata.schema()))
    return Target(base, schema_updates.evolved(metadata, more), (*updates, *more))


def _properties(source: Source, schema: Schema) -> dict[str, str]:
    files = source.origin
    known = files.schema or () if isinstance(files, Files) else ()
    declared = {column.name.lower(): bare(field_of(column).field_type) for column in known}
    others = [
        f"{field.name} {field.field_type}"
        for field in schema.fields
        if field.name.lower() not in declared
        or (not field.field_type.is_primitive and bare(field.field_type) != declared[field.name.lower()])
    ]
    found = {table_properties.SOURCE: "files", **schema_updates.key_property(source.key, schema)}
    return {**found, table_properties.UNDECLARED: "columns: " + ", ".join(others)} if others else found


def _declared(source: Source) -> Schema:
    files = source.origin
    if not isinstance(files, Files) or not files.schema:
        what = f"the files of `{source.table}` are empty, and no schema says which columns it has"
        raise RunnelError(
            "SOURCE_NO_COLUMNS", what, at=str(source.place), fix="add a file with rows, or declare schema="
        )
    return assign_fresh_schema_ids(Schema(*(field_of(column) for column in files.schema)))
