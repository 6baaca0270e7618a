"""Prepare the version of a source's table that rows are written for: created, or evolved from the current one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids

from runnel.connect.iceberg_types import strip_field_ids, to_iceberg_field
from runnel.connect.load import schema_updates
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.partition_spec import is_same_partitioning, parse_partition_spec
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError
from runnel.lake.iceberg import table_metadata, table_properties

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from runnel.lake.store import Store


@dataclass(frozen=True)
class WriteTarget:
    """The version that data files are written for: `metadata` is that of `location` with `updates` applied."""

    location: str
    metadata: "TableMetadata"
    updates: "tuple[TableUpdate, ...]" = ()

    @property
    def undeclared(self) -> str:
        """Return the columns that only the files name, as text."""
        return self.metadata.properties.get(table_properties.UNDECLARED, "")


def create_target(store: "Store", source: Source, choices: Sequence[ColumnChoice], before: str | None) -> WriteTarget:
    """Create the table with the chosen columns, or the declared ones; it keeps the properties of `before`."""
    schema = schema_updates.create_schema(choices) if choices else _create_declared_schema(source)
    retained_properties = table_metadata.load_metadata(store, before).properties if before else {}
    retained_properties = {
        key: value
        for key, value in retained_properties.items()
        if key not in (table_properties.KEY, table_properties.UNDECLARED)
    }
    spec = parse_partition_spec(source.partition, schema)
    location, metadata = table_metadata.create_table(
        store, source.table, schema, spec=spec, properties={**retained_properties, **_build_properties(source, schema)}
    )
    return WriteTarget(location, metadata)


def evolve_target(store: "Store", source: Source, choices: Sequence[ColumnChoice], base: str) -> WriteTarget:
    """Return the current version, updated with the columns and properties that are needed."""
    metadata = table_metadata.load_metadata(store, base)
    if not is_same_partitioning(metadata.spec(), parse_partition_spec(source.partition, metadata.schema())):
        parts = ", ".join(f"{part.transform}({part.name})" for part in metadata.spec().fields) or "not at all"
        what = f"`{source.table}` is partitioned differently than its source says: {parts}"
        fix = "declare the partition that it has; it changes only if all rows can be read again"
        raise Mistake("SOURCE_PARTITION", what, at=str(source.place), fix=fix)
    updates = schema_updates.plan_schema_updates(store, source.table, base, choices)
    metadata = schema_updates.apply_updates(metadata, updates)
    property_changes = schema_updates.plan_property_updates(metadata, _build_properties(source, metadata.schema()))
    return WriteTarget(base, schema_updates.apply_updates(metadata, property_changes), (*updates, *property_changes))


def _build_properties(source: Source, schema: Schema) -> dict[str, str]:
    files = source.origin
    declared_columns = files.schema or () if isinstance(files, Files) else ()
    declared_types = {
        column.name.lower(): strip_field_ids(to_iceberg_field(column).field_type) for column in declared_columns
    }
    undeclared_columns = [
        f"{field.name} {field.field_type}"
        for field in schema.fields
        if field.name.lower() not in declared_types
        or (
            not field.field_type.is_primitive
            and strip_field_ids(field.field_type) != declared_types[field.name.lower()]
        )
    ]
    properties = {table_properties.SOURCE: "files", **schema_updates.build_key_property(source.key, schema)}
    return (
        {**properties, table_properties.UNDECLARED: "columns: " + ", ".join(undeclared_columns)}
        if undeclared_columns
        else properties
    )


def _create_declared_schema(source: Source) -> Schema:
    files = source.origin
    if not isinstance(files, Files) or not files.schema:
        what = f"the files of `{source.table}` are empty, and no schema says which columns it has"
        raise RunnelError(
            "SOURCE_NO_COLUMNS", what, at=str(source.place), fix="add a file with rows, or declare schema="
        )
    return assign_fresh_schema_ids(Schema(*(to_iceberg_field(column) for column in files.schema)))
