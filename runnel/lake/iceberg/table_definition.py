"""Compare and combine table definitions: columns, partition specs, sort orders and properties.

Pure: compares metadata that the caller has read.
"""

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate


class IncompatibleChanges(Exception):
    """Two changes of a table can't be combined; `reason` says why, in words for a user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def extract_definition(metadata: TableMetadata) -> tuple[object, ...]:
    """Return what must be equal in two versions for a data file to mean the same in both.

    Includes all schemas and the last column id, not just the current schema: a column that was added and dropped used
    a field id that data files may contain, and the other side must not use it for another column.
    """
    return (
        metadata.format_version,
        metadata.location,
        tuple(metadata.schemas),
        metadata.current_schema_id,
        metadata.last_column_id,
        tuple(metadata.partition_specs),
        metadata.default_spec_id,
        metadata.last_partition_id,
        tuple(metadata.sort_orders),
        metadata.default_sort_order_id,
    )


def combine_properties(
    base: Mapping[str, str], start: Mapping[str, str], other: Mapping[str, str]
) -> tuple[TableUpdate, ...]:
    """Return the updates that apply to `start` what `other` changed since `base`."""
    changed = [name for name in sorted(base.keys() | other.keys()) if base.get(name) != other.get(name)]
    pending = [name for name in changed if start.get(name) != other.get(name)]
    conflicting = [name for name in pending if start.get(name) != base.get(name)]
    if conflicting:
        raise IncompatibleChanges(f"both sides changed the property {conflicting[0]}")
    updates: list[TableUpdate] = []
    new_values = {name: other[name] for name in pending if name in other}
    removed = [name for name in pending if name not in other]
    if new_values:
        updates.append(SetPropertiesUpdate(updates=new_values))
    if removed:
        updates.append(RemovePropertiesUpdate(removals=removed))
    return tuple(updates)
