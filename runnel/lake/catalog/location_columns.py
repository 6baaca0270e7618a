"""List every column of the catalog database that contains locations in the warehouse: versions, data files, folders.

This is the only list of them. A test walks the schema: it fails for a text column that is listed here neither with
nor without locations.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema

LocationMapper = Callable[[str], str]
"""Returns the new location for an old one, and any other text unchanged."""


@dataclass(frozen=True)
class LocationColumn:
    """A column with locations: each value is a location, or JSON that contains locations.

    `within` limits a change to one member of the JSON object: other members may contain paths that must stay.
    """

    table: sa.Table
    name: str
    is_json: bool = False
    within: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return the names of the table and of the column."""
        return self.table.name, self.name

    def move_value(self, value: str, map_location: LocationMapper) -> str:
        """Return a value with every location in it moved."""
        if not self.is_json:
            return map_location(value)
        document = json.loads(value)
        changed = _move_json(document, map_location) if self.within is None else document
        if self.within is not None and self.within in document:
            changed = {**document, self.within: _move_json(document[self.within], map_location)}
        return value if changed == document else json.dumps(changed, sort_keys=True)


def _plain_columns(table: sa.Table, *names: str) -> tuple[LocationColumn, ...]:
    return tuple(LocationColumn(table, name) for name in names)


LOCATION_COLUMNS: tuple[LocationColumn, ...] = (
    *_plain_columns(schema.iceberg_tables, "metadata_location", "previous_metadata_location"),
    *_plain_columns(schema.iceberg_namespaces, "property_value"),
    *_plain_columns(schema.lake, "warehouse"),
    *_plain_columns(schema.changes, "before", "after", "content"),
    LocationColumn(schema.changes, "detail", is_json=True),
    *_plain_columns(schema.heads, "location", "content"),
    *_plain_columns(schema.garbage, "path"),
    *_plain_columns(schema.results, "location", "content", "quarantine_location", "quarantine_content"),
    LocationColumn(schema.results, "detail", is_json=True, within="inputs"),
    LocationColumn(schema.ingested, "files", is_json=True),
    *_plain_columns(schema.deliveries, "location", "content"),
    LocationColumn(schema.streams, "tapes", is_json=True),
    LocationColumn(schema.schedules, "cursor", is_json=True),
)

COLUMNS_WITHOUT_LOCATIONS: Mapping[str, tuple[str, ...]] = {
    "iceberg_tables": ("catalog_name", "table_namespace", "table_name", "iceberg_type"),
    "iceberg_namespace_properties": ("catalog_name", "namespace", "property_key"),
    "runnel_lake": ("uuid", "created_at"),
    "runnel_lines": ("id", "branch", "from_commit", "from_line"),
    "runnel_branches": ("name", "line", "head", "created_at", "author"),
    "runnel_commits": (
        *("id", "line", "branch", "parent", "merged", "kind", "author", "message", "run", "at", "expired_at"),
    ),
    "runnel_changes": ("line", "table_name", "commit_id"),
    "runnel_heads": ("branch", "table_name"),
    "runnel_tags": ("name", "commit_id", "author", "at"),
    "runnel_pins": ("id", "kind", "owner", "commit_id", "started_at", "expires_at"),
    "runnel_slots": ("name", "owner", "commit_id", "taken_at", "expires_at", "token"),
    "runnel_garbage": ("found_at",),
    "runnel_results": ("table_name", "key", "run", "branch", "made_at", "used_at"),
    # What a run, a request or an alarm recorded is history, and stays as it was recorded.
    "runnel_runs": ("id", "branch", "state", "author", "started_at", "ended_at", "commit_id", "detail"),
    "runnel_queue": (
        *("id", "branch", "kind", "wish", "cause", "slot", "author", "state", "queued_at", "not_before", "worker"),
        *("token", "renewed_at", "started_at", "cancel_at", "commit_id", "ended_at", "outcome"),
    ),
    "runnel_events": ("run", "at", "event"),
    "runnel_alarms": (
        *("key", "kind", "level", "since", "detail", "over_at", "acknowledged_at", "acknowledged_by"),
        *("dismissed_at", "dismissed_by", "note"),
    ),
    "runnel_mutes": ("subject", "kind", "muted_until", "muted_by"),
    "runnel_tellings": ("key", "alert", "word", "next_at", "told_at", "problem"),
    "runnel_answers": ("key", "request", "body", "at"),
    "runnel_batches": ("query", "branch", "table_name", "commit_id", "at", "detail"),
    # The path and the state belong to the source, not to the warehouse.
    "runnel_ingested": ("line", "table_name", "path", "sha256", "identity", "state"),
    "runnel_deliveries": (
        *("sink", "delivered", "begun", "at", "problem", "failing_since", "next_at", "holder", "held_until"),
    ),
    "runnel_streams": (
        *("branch", "table_name", "life", "query", "code", "begun_at", "state", "problem", "since", "owner", "token"),
        "expires_at",
    ),
    "runnel_workers": ("id", "kind", "owner", "state", "started_at", "renewed_at", "detail"),
    "runnel_leases": ("name", "owner", "token", "renewed_at"),
    "runnel_schedules": ("name", "declared", "paused_at", "paused_by", "seen_at", "gone_at"),
    "runnel_backfills": ("id", "branch", "wish", "author", "state", "made_at"),
    "runnel_tokens": (
        *("name", "hash", "scope", "made_at", "revoked_at", "tables", "branch", "sources", "id", "expires_at"),
        *("last_used_at", "previous_hash", "previous_until"),
    ),
    "runnel_declared": ("kind", "name", "declared", "since"),
    "runnel_code": ("hash", "kind", "content", "kept_at"),
    "runnel_inboxes": ("source",),
    "runnel_inbox": ("source", "body", "received_at", "mark"),
    "runnel_inbox_keys": ("source", "key", "request"),
}


def move_locations(connection: Connection, map_location: LocationMapper) -> None:
    """Move every location in the catalog database, within the caller's transaction."""
    for table in dict.fromkeys(column.table for column in LOCATION_COLUMNS):
        _move_table(connection, table, [column for column in LOCATION_COLUMNS if column.table is table], map_location)


def _move_table(
    connection: Connection, table: sa.Table, columns: list[LocationColumn], map_location: LocationMapper
) -> None:
    """Move the locations in some columns of every row, and write only the rows that changed."""
    keys = [column.name for column in table.primary_key.columns]
    names = [column.name for column in columns]
    changed: list[dict[str, Any]] = []
    for row in connection.execute(sa.select(*(table.c[name] for name in dict.fromkeys([*keys, *names])))):
        values = row._mapping
        new_values = {
            column.name: values[column.name] and column.move_value(values[column.name], map_location)
            for column in columns
        }
        if any(new_values[name] != values[name] for name in names):
            changed.append(
                {f"key_{name}": values[name] for name in keys}
                | {f"new_{name}": new_values[name] for name in new_values}
            )
    if changed:
        key_condition = sa.and_(*(table.c[name] == sa.bindparam(f"key_{name}") for name in keys))
        new_parameters: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in names}
        connection.execute(table.update().where(key_condition).values(new_parameters), changed)


def _move_json(value: Any, map_location: LocationMapper) -> Any:
    """Return a JSON value with every location in it moved, at any depth."""
    if isinstance(value, str):
        return map_location(value)
    if isinstance(value, list):
        return [_move_json(item, map_location) for item in value]
    return (
        {map_location(name): _move_json(item, map_location) for name, item in value.items()}
        if isinstance(value, dict)
        else value
    )
