"""Plan the schema and property updates that a table needs for a load. Stages nothing."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate, update_table_metadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import NestedField

from runnel.connect.iceberg_types import NO_ID
from runnel.connect.load.column_matching import ColumnChoice
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.table_metadata import open_table

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def create_schema(choices: Sequence[ColumnChoice]) -> Schema:
    """Return the schema of a new table with these columns."""
    fields = [
        NestedField(NO_ID, choice.name, choice.conversions[0].kind, required=choice.required, doc=choice.doc)
        for choice in choices
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def plan_schema_updates(
    store: "Store", name: "TableName", location: str, choices: Sequence[ColumnChoice]
) -> tuple[TableUpdate, ...]:
    """Return the updates that add new columns and widen others."""
    schema_update = UpdateSchema(Transaction(open_table(store, name, location)), case_sensitive=True)
    is_changed = False
    for choice in choices:
        kind = choice.conversions[0].kind
        if choice.stored is None:
            if choice.required:
                what = f"`{choice.name}` can't be added as NOT NULL: the rows that `{name}` has would lack it"
                raise Mistake("LOAD_TYPE", what, fix="declare it without NOT NULL")
            schema_update.add_column((choice.name,), kind, choice.doc)
            is_changed = True
        elif kind != choice.stored.field_type:
            if kind.is_primitive:
                schema_update.update_column((choice.stored.name,), kind)
            else:
                field = NestedField(NO_ID, choice.stored.name, kind, required=choice.stored.required)
                schema_update.union_by_name(assign_fresh_schema_ids(Schema(field)))
            is_changed = True
    return schema_update._commit()[0] if is_changed else ()


def plan_property_updates(metadata: TableMetadata, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
    """Return the update that sets the properties that differ."""
    differing = {key: value for key, value in properties.items() if metadata.properties.get(key) != value}
    return (SetPropertiesUpdate(updates=differing),) if differing else ()


def apply_updates(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return metadata with updates applied."""
    return update_table_metadata(metadata, updates) if updates else metadata


def build_key_property(key: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return the table property that names the key columns."""
    names = {field.name.lower(): field.name for field in schema.fields}
    unknown = [column for column in key if column.lower() not in names]
    if unknown:
        what = f"the key names {join_names(unknown)}, which is not a column" + did_you_mean(unknown[0], names.values())
        raise Mistake("LOAD_KEY", what, fix=f"choose among {join_names(names.values())}")
    columns_with_comma = [column for column in key if "," in column]
    if columns_with_comma:
        raise Mistake(
            "LOAD_KEY",
            f"{join_names(columns_with_comma)} can't be a key: it has a comma in its name",
            fix="rename the column",
        )
    return {table_properties.KEY: ",".join(names[column.lower()] for column in key)} if key else {}
