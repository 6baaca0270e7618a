"""Change a table's schema and properties so that it can take what a load brings. Stages nothing."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate, update_table_metadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import NestedField

from runnel.connect.iceberg_types import NO_ID
from runnel.connect.load.column_matching import Choice
from runnel.errors import Mistake, listed, nearest
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.table_metadata import handle

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def new_schema(choices: Sequence[Choice]) -> Schema:
    """Return the schema of a table that is made for these columns."""
    fields = [
        NestedField(NO_ID, choice.name, choice.tries[0].kind, required=choice.required, doc=choice.doc)
        for choice in choices
    ]
    return assign_fresh_schema_ids(Schema(*fields))


def schema_updates(
    store: "Store", name: "TableName", location: str, choices: Sequence[Choice]
) -> tuple[TableUpdate, ...]:
    """Return the updates that add new columns and widen others."""
    change = UpdateSchema(Transaction(handle(store, name, location)), case_sensitive=True)
    changed = False
    for choice in choices:
        kind = choice.tries[0].kind
        if choice.stored is None:
            if choice.required:
                what = f"`{choice.name}` can't be added as NOT NULL: the rows that `{name}` has would lack it"
                raise Mistake("LOAD_TYPE", what, fix="declare it without NOT NULL")
            change.add_column((choice.name,), kind, choice.doc)
            changed = True
        elif kind != choice.stored.field_type:
            if kind.is_primitive:
                change.update_column((choice.stored.name,), kind)
            else:
                field = NestedField(NO_ID, choice.stored.name, kind, required=choice.stored.required)
                change.union_by_name(assign_fresh_schema_ids(Schema(field)))
            changed = True
    return change._commit()[0] if changed else ()


def property_updates(metadata: TableMetadata, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
    """Return the update that sets properties where they differ."""
    differing = {key: value for key, value in properties.items() if metadata.properties.get(key) != value}
    return (SetPropertiesUpdate(updates=differing),) if differing else ()


def evolved(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return metadata with updates applied."""
    return update_table_metadata(metadata, updates) if updates else metadata


def key_property(key: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return the table property that names the columns by which rows are told apart."""
    names = {field.name.lower(): field.name for field in schema.fields}
    unknown = [column for column in key if column.lower() not in names]
    if unknown:
        close = nearest(unknown[0], names.values())
        what = f"the key names {listed(unknown)}, which is no column" + (f"; close: `{close}`" if close else "")
        raise Mistake("LOAD_KEY", what, fix=f"choose among {listed(names.values())}")
    odd = [column for column in key if "," in column]
    if odd:
        raise Mistake("LOAD_KEY", f"{listed(odd)} can't be a key: it has a comma in its name", fix="rename the column")
    return {table_properties.KEY: ",".join(names[column.lower()] for column in key)} if key else {}
