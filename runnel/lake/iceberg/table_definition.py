"""What a table is besides its rows: columns, partitions, order and properties, and how two changes of it combine.

Pure: compares metadata that the caller has read.
"""

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate


class Clash(Exception):
    """Two changes of a table don't combine; `reason` says why in words that a report can use."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def definition(metadata: TableMetadata) -> tuple[object, ...]:
    """Return what must be equal for files of one version to mean the same in another.

    All schemas and the last column id count, not just the current schema: a column that was added and dropped has
    used up an id that files may hold, and the other side must not give it to another column.
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


def combined_properties(
    base: Mapping[str, str], start: Mapping[str, str], other: Mapping[str, str]
) -> tuple[TableUpdate, ...]:
    """Return the updates that bring what `other` changed since `base` to `start`."""
    changed = [name for name in sorted(base.keys() | other.keys()) if base.get(name) != other.get(name)]
    wanted = [name for name in changed if start.get(name) != other.get(name)]
    against = [name for name in wanted if start.get(name) != base.get(name)]
    if against:
        raise Clash(f"both sides changed the property {against[0]}")
    updates: list[TableUpdate] = []
    set_to = {name: other[name] for name in wanted if name in other}
    gone = [name for name in wanted if name not in other]
    if set_to:
        updates.append(SetPropertiesUpdate(updates=set_to))
    if gone:
        updates.append(RemovePropertiesUpdate(removals=gone))
    return tuple(updates)
