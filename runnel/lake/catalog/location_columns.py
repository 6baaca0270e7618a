"""Every column of the catalog database that holds locations of the warehouse: versions, data files, folders.

The one list of them, for whoever moves locations or asks which there are. A test walks the schema: a column of text
that is listed here neither as one with locations nor as one without fails it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema

Place = Callable[[str], str]
"""Tells where a location is now; any other text stays as it is."""


@dataclass(frozen=True)
class LocationColumn:
    """A column with locations: each value is one, or is JSON in which they stand.

    `within` limits a change to one member of the JSON object: other members may name paths that must stay.
    """

    table: sa.Table
    name: str
    is_json: bool = False
    within: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return the names of the table and of the column."""
        return self.table.name, self.name

    def moved(self, value: str, place: Place) -> str:
        """Return a value with every location in it moved."""
        if not self.is_json:
            return place(value)
        document = json.loads(value)
        changed = _moved(document, place) if self.within is None else document
        if self.within is not None and self.within in document:
            changed = {**document, self.within: _moved(document[self.within], place)}
        return value if changed == document else json.dumps(changed, sort_keys=True)


def _columns(table: sa.Table, *names: str) -> tuple[LocationColumn, ...]:
    return tuple(LocationColumn(table, name) for name in names)


LOCATION_COLUMNS: tuple[LocationColumn, ...] = (
    *_columns(schema.iceberg_tables, "metadata_location", "previous_metadata_location"),
    *_columns(schema.iceberg_namespaces, "property_value"),
    *_columns(schema.lake, "warehouse"),
    *_columns(schema.changes, "before", "after", "content"),
    LocationColumn(schema.changes, "detail", is_json=True),
    *_columns(schema.heads, "location", "content"),
    *_columns(schema.garbage, "path"),
    *_columns(schema.results, "location", "content", "quarantine_location", "quarantine_content"),
    LocationColumn(schema.results, "detail", is_json=True, within="inputs"),
    LocationColumn(schema.ingested, "files", is_json=True),
    *_columns(schema.deliveries, "location", "content"),
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
    # What a run, a request or an alarm said at its time is a record, and stays as it was said.
    "runnel_runs": ("id", "branch", "state", "author", "started_at", "ended_at", "commit_id", "detail"),
    "runnel_queue": (
        *("id", "branch", "kind", "wish", "cause", "slot", "author", "state", "queued_at", "not_before", "worker"),
        *("token", "renewed_at", "started_at", "cancel_at", "commit_id", "ended_at", "outcome"),
    ),
    "runnel_events": ("run", "at", "event"),
    "runnel_alarms": ("key", "kind", "level", "since", "detail", "over_at"),
    "runnel_tellings": ("key", "alert", "word", "next_at", "told_at", "problem"),
    "runnel_answers": ("key", "request", "body", "at"),
    "runnel_batches": ("query", "branch", "table_name", "commit_id", "at", "detail"),
    # The path is that of the source's own file, and the state is the source's own.
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
    "runnel_tokens": ("name", "hash", "scope", "made_at", "revoked_at", "tables", "branch"),
    "runnel_declared": ("kind", "name", "declared", "since"),
    "runnel_code": ("hash", "kind", "content", "kept_at"),
    "runnel_inboxes": ("source",),
    "runnel_inbox": ("source", "body", "received_at", "mark"),
    "runnel_inbox_keys": ("source", "key", "request"),
}


def move_locations(connection: Connection, place: Place) -> None:
    """Move every location in the catalog database, within the caller's transaction."""
    for table in dict.fromkeys(column.table for column in LOCATION_COLUMNS):
        _move_table(connection, table, [column for column in LOCATION_COLUMNS if column.table is table], place)


def _move_table(connection: Connection, table: sa.Table, columns: list[LocationColumn], place: Place) -> None:
    """Change columns of every row; only rows that differ afterwards are written."""
    keys = [column.name for column in table.primary_key.columns]
    names = [column.name for column in columns]
    changed: list[dict[str, Any]] = []
    for row in connection.execute(sa.select(*(table.c[name] for name in dict.fromkeys([*keys, *names])))):
        values = row._mapping
        new = {column.name: values[column.name] and column.moved(values[column.name], place) for column in columns}
        if any(new[name] != values[name] for name in names):
            changed.append({f"key_{name}": values[name] for name in keys} | {f"new_{name}": new[name] for name in new})
    if changed:
        here = sa.and_(*(table.c[name] == sa.bindparam(f"key_{name}") for name in keys))
        moved: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in names}
        connection.execute(table.update().where(here).values(moved), changed)


def _moved(value: Any, place: Place) -> Any:
    """Return a JSON value with every location in it, wherever it stands, moved."""
    if isinstance(value, str):
        return place(value)
    if isinstance(value, list):
        return [_moved(item, place) for item in value]
    return {place(name): _moved(item, place) for name, item in value.items()} if isinstance(value, dict) else value
