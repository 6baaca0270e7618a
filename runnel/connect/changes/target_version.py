"""The version of a table that follows from a log: created, or the one that is there with the columns that came."""

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Transaction
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import NestedField

from runnel.connect.changes.change_sql import Rule
from runnel.connect.iceberg_types import NO_ID, bare
from runnel.connect.ingest.target_version import Target
from runnel.connect.load import schema_updates
from runnel.connect.load.partition_spec import spec_of
from runnel.declare.model.flow import Source
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.plan.decisions.change_log import content_of
from runnel.plan.facts import Head

if TYPE_CHECKING:
    from runnel.lake.store import Store

_MADE_BY = {table_properties.MADE_BY: "task"}


def follows(log: Head) -> dict[str, str]:
    """Return what a snapshot says about the log that it follows from."""
    return {table_properties.LOG: log.location, table_properties.LOG_CONTENT: log.content}


def log_before(store: "Store", source: Source, base: Head) -> str | None:
    """Return the version of the log that a version follows from; None where it is not what would be made of one.

    That is what a snapshot says and not a property: two snapshots may differ in it and be reverted one by one.
    """
    for snapshot in reversed(table_metadata.load(store, base.location).snapshots):
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        log, content = told.get(table_properties.LOG), told.get(table_properties.LOG_CONTENT)
        if log and content and base.content == content_of(source, content):
            return log
    return None


def created(store: "Store", source: Source, rule: Rule, before: str | None) -> Target:
    """Create the table; properties are those that `before` had."""
    fields = (NestedField(NO_ID, each.name, each.field_type, required=False, doc=each.doc) for each in rule.fields)
    schema = assign_fresh_schema_ids(Schema(*fields))
    kept = dict(table_metadata.load(store, before).properties) if before else {}
    kept.pop(table_properties.KEY, None)
    spec = spec_of(source.partition, schema)
    properties = {**kept, **_properties(rule, schema)}
    return Target(*table_metadata.create(store, source.table, schema, spec=spec, properties=properties))


def evolved(store: "Store", source: Source, rule: Rule, base: str) -> Target | None:
    """Return the version that is there with the columns that its log gained; None where others changed."""
    metadata = table_metadata.load(store, base)
    there = {field.name: field.field_type for field in metadata.schema().fields}
    wanted = {field.name: field for field in rule.fields}
    if any(name not in wanted or bare(wanted[name].field_type) != bare(kind) for name, kind in there.items()):
        return None
    change = UpdateSchema(Transaction(table_metadata.handle(store, source.table, base)), case_sensitive=True)
    new = [field for name, field in wanted.items() if name not in there]
    for field in new:
        change.add_column((field.name,), field.field_type, field.doc)
    updates = change._commit()[0] if new else ()
    metadata = schema_updates.evolved(metadata, updates)
    more = schema_updates.property_updates(metadata, _properties(rule, metadata.schema()))
    return Target(base, schema_updates.evolved(metadata, more), (*updates, *more))


def _properties(rule: Rule, schema: Schema) -> dict[str, str]:
    key = rule.key if rule.scd == 1 else (*rule.key, *rule.sequence)
    return {**_MADE_BY, **schema_updates.key_property(key, schema)}
