"""Prepare the version of a table derived from a change log: created, or the current one with new columns added."""

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Transaction
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import NestedField

from runnel.connect.changes.change_sql import ChangeRule
from runnel.connect.iceberg_types import NO_ID, strip_field_ids
from runnel.connect.ingest.target_version import WriteTarget
from runnel.connect.load import schema_updates
from runnel.connect.load.partition_spec import parse_partition_spec
from runnel.declare.model.flow import Source
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.model.table_version import TableVersion
from runnel.plan.decisions.change_log import compute_content_id

if TYPE_CHECKING:
    from runnel.lake.store import Store

_MADE_BY_PROPERTY = {table_properties.MADE_BY: "task"}


def build_log_summary(log: TableVersion) -> dict[str, str]:
    """Return the snapshot summary that names the log version from which the table is derived."""
    return {table_properties.LOG: log.location, table_properties.LOG_CONTENT: log.content}


def find_applied_log(store: "Store", source: Source, base: TableVersion) -> str | None:
    """Return the log version from which a version was derived; None if its content is not the result of a log.

    The snapshot summary stores it, not a table property: two snapshots may differ in it and be reverted one by one.
    """
    for snapshot in reversed(table_metadata.load_metadata(store, base.location).snapshots):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        log, content = summary.get(table_properties.LOG), summary.get(table_properties.LOG_CONTENT)
        if log and content and base.content == compute_content_id(source, content):
            return log
    return None


def create_target(store: "Store", source: Source, rule: ChangeRule, before: str | None) -> WriteTarget:
    """Create the table; it keeps the properties of the version `before`."""
    fields = (NestedField(NO_ID, field.name, field.field_type, required=False, doc=field.doc) for field in rule.fields)
    schema = assign_fresh_schema_ids(Schema(*fields))
    retained_properties = dict(table_metadata.load_metadata(store, before).properties) if before else {}
    retained_properties.pop(table_properties.KEY, None)
    spec = parse_partition_spec(source.partition, schema)
    properties = {**retained_properties, **_build_properties(rule, schema)}
    return WriteTarget(*table_metadata.create_table(store, source.table, schema, spec=spec, properties=properties))


def evolve_target(store: "Store", source: Source, rule: ChangeRule, base: str) -> WriteTarget | None:
    """Return the current version with the new columns of its log; None if existing columns changed."""
    metadata = table_metadata.load_metadata(store, base)
    current_types = {field.name: field.field_type for field in metadata.schema().fields}
    required_fields = {field.name: field for field in rule.fields}
    if any(
        name not in required_fields or strip_field_ids(required_fields[name].field_type) != strip_field_ids(kind)
        for name, kind in current_types.items()
    ):
        return None
    schema_update = UpdateSchema(Transaction(table_metadata.open_table(store, source.table, base)), case_sensitive=True)
    new_fields = [field for name, field in required_fields.items() if name not in current_types]
    for field in new_fields:
        schema_update.add_column((field.name,), field.field_type, field.doc)
    updates = schema_update._commit()[0] if new_fields else ()
    metadata = schema_updates.apply_updates(metadata, updates)
    property_changes = schema_updates.plan_property_updates(metadata, _build_properties(rule, metadata.schema()))
    return WriteTarget(base, schema_updates.apply_updates(metadata, property_changes), (*updates, *property_changes))


def _build_properties(rule: ChangeRule, schema: Schema) -> dict[str, str]:
    key = rule.key if rule.scd == 1 else (*rule.key, *rule.sequence)
    return {**_MADE_BY_PROPERTY, **schema_updates.build_key_property(key, schema)}
