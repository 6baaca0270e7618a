"""Make tables and rows in a lake, so that a test states only what matters."""

from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform

from runnel.lake.catalog.schema import slots
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName

ORDERS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("amount", pa.int64())])


def rows(*values: tuple[int, str, int]) -> pa.Table:
    """Return orders as a table: (id, day, amount)."""
    return pa.Table.from_pylist([dict(zip(ORDERS.names, value, strict=True)) for value in values], ORDERS)


def iceberg_schema(schema: pa.Schema) -> Schema:
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))


def spec_by(schema: Schema, column: str | None) -> PartitionSpec:
    if column is None:
        return UNPARTITIONED_PARTITION_SPEC
    field = PartitionField(
        source_id=schema.find_field(column).field_id, field_id=1000, transform=IdentityTransform(), name=column
    )
    return PartitionSpec(field)


def create(store: Store, name: str, data: pa.Table, *, branch: str = "main", by: str | None = None) -> Commit:
    """Create a table with rows, and publish it."""
    table, schema = TableName.parse(name), iceberg_schema(data.schema)
    empty, metadata = table_metadata.create_table(store, table, schema, spec=spec_by(schema, by))
    files = parquet_writer.write_rows(store, metadata, data.to_batches())
    location = snapshots.stage_version(store, empty, snapshots.VersionEdit(added=files))
    return publish(
        store.db, CommitDraft(branch, f"create {name}", store.author, (CommitChange(table, None, location),))
    )


def add(store: Store, name: str, data: pa.Table, *, branch: str = "main") -> Commit:
    """Append rows to a table, and publish it."""
    table = TableName.parse(name)
    base = store.state(branch)[table].location
    files = parquet_writer.write_rows(store, table_metadata.load_metadata(store, base), data.to_batches())
    return publish_edit(store, branch, table, lambda _: snapshots.VersionEdit(added=files), f"add to {name}")


def slots_in_use(store: Store) -> list[str]:
    """Return the names of all slots that somebody has."""
    names = sa.select(slots.c.name).order_by(slots.c.name)
    return list(store.db.read(lambda connection: connection.execute(names).scalars().all()))


def read(store: Store, name: str, ref: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows of a table at a ref, sorted."""
    version = store.versions(store.commit(ref), [TableName.parse(name)])[TableName.parse(name)]
    sql = rows_sql(store, table_metadata.load_metadata(store, version.location))
    with connect_duckdb() as connection:
        return sorted(connection.execute(sql).fetchall(), key=repr)
