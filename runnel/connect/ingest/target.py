"""The version of a source's table that rows are written for: created, or evolved from the one that is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema, assign_fresh_schema_ids

from runnel.connect import evolve
from runnel.connect.fit import Choice
from runnel.connect.kinds import bare, field_of
from runnel.connect.partition import same_partitions, spec_of
from runnel.declare.flow import Source
from runnel.declare.origin import Files
from runnel.errors import Mistake, RunnelError
from runnel.lake import tables

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from runnel.lake.store import Store

SOURCE = "runnel.source"
UNDECLARED = "runnel.undeclared"  # what is part of the table's content because no declaration says it


@dataclass(frozen=True)
class Target:
    """What data files are written for: `metadata` is `location` with `updates` applied."""

    location: str
    metadata: "TableMetadata"
    updates: "tuple[TableUpdate, ...]" = ()

    @property
    def undeclared(self) -> str:
        """Return the columns that only the files name, as text."""
        return self.metadata.properties.get(UNDECLARED, "")


def created(store: "Store", source: Source, choices: Sequence[Choice], before: str | None) -> Target:
    """Create the table for what was chosen, or just as declared; properties are those that `before` had."""
    schema = evolve.new_schema(choices) if choices else _declared(source)
    kept = tables.load(store, before).properties if before else {}
    kept = {key: value for key, value in kept.items() if key not in (evolve.KEY, UNDECLARED)}
    spec = spec_of(source.partition, schema)
    location, metadata = tables.create(
        store, source.table, schema, spec=spec, properties={**kept, **_properties(source, schema)}
    )
    return Target(location, metadata)


def evolved(store: "Store", source: Source, choices: Sequence[Choice], base: str) -> Target:
    """Return the version that is there with the columns and properties that are needed."""
    metadata = tables.load(store, base)
    if not same_partitions(metadata.spec(), spec_of(source.partition, metadata.schema())):
        parts = ", ".join(f"{part.transform}({part.name})" for part in metadata.spec().fields) or "not at all"
        what = f"`{source.table}` is partitioned otherwise than its source says: {parts}"
        fix = "declare the partition that it has; it changes only where all rows can be read again"
        raise Mistake("SOURCE_PARTITION", what, at=str(source.place), fix=fix)
    updates = evolve.schema_updates(store, source.table, base, choices)
    metadata = evolve.evolved(metadata, updates)
    more = evolve.property_updates(metadata, _properties(source, metadata.schema()))
    return Target(base, evolve.evolved(metadata, more), (*updates, *more))


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
    found = {SOURCE: "files", **evolve.key_property(source.key, schema)}
    return {**found, UNDECLARED: "columns: " + ", ".join(others)} if others else found


def _declared(source: Source) -> Schema:
    files = source.origin
    if not isinstance(files, Files) or not files.schema:
        what = f"the files of `{source.table}` are empty, and no schema says which columns it has"
        raise RunnelError(
            "SOURCE_NO_COLUMNS", what, at=str(source.place), fix="add a file with rows, or declare schema="
        )
    return assign_fresh_schema_ids(Schema(*(field_of(column) for column in files.schema)))
