"""A table takes the wanted shape, and no old value shows up in a column that it does not belong to."""

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.schema_evolution import evolve_table
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.leases import slots
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.names import TableName
from tests.lake.factories import create, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = TableName("ods", "orders")


def shape(**kinds: IcebergType) -> Schema:
    """Return columns without ids, required, as an engine's frame may have them."""
    return Schema(*(NestedField(-1, name, kind, required=True) for name, kind in kinds.items()))


def by(column: str, transform: Any = None) -> Any:
    return lambda schema: PartitionSpec(
        PartitionField(schema.find_field(column).field_id, 1000, transform or IdentityTransform(), f"{column}_p")
    )


def sorted_by(column: str) -> Any:
    return lambda schema: SortOrder(
        SortField(schema.find_field(column).field_id, IdentityTransform(), SortDirection.DESC)
    )


def ids(store: Store, location: str) -> dict[str, int]:
    return {field.name: field.field_id for field in table_metadata.load_metadata(store, location).schema().fields}


def read(store: Store, location: str) -> list[tuple[Any, ...]]:
    return sorted(connect_duckdb().execute(rows_sql(store, table_metadata.load_metadata(store, location))).fetchall())


LONG, TEXT = LongType(), StringType()
SHAPES: dict[str, tuple[Schema, dict[str, int], list[tuple[Any, ...]]]] = {
    # the wanted columns, their ids, the rows of (id 1, day 2, amount 3) as they are read then
    "the same": (shape(id=LONG, day=TEXT, amount=LONG), {"id": 1, "day": 2, "amount": 3}, [(1, "a", 5)]),
    "a new column": (shape(id=LONG, day=TEXT, x=TEXT), {"id": 1, "day": 2, "x": 4}, [(1, "a", None)]),
    "another order": (shape(amount=LONG, id=LONG, day=TEXT), {"amount": 3, "id": 1, "day": 2}, [(5, 1, "a")]),
    "fewer": (shape(id=LONG), {"id": 1}, [(1,)]),
    "another type": (shape(id=LONG, day=LONG, amount=LONG), {"id": 1, "day": 4, "amount": 3}, [(1, None, 5)]),
    "narrower": (shape(id=IntegerType(), day=TEXT), {"id": 4, "day": 2}, [(None, "a")]),
    "only its case": (shape(ID=LONG, day=TEXT), {"ID": 1, "day": 2}, [(1, "a")]),
    "two that differ in case": (shape(id=LONG, Day=LONG, day=TEXT), {"id": 1, "Day": 4, "day": 2}, []),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "expected", "rows_then"), SHAPES.values(), ids=SHAPES)
def test_columns_are_matched_by_name_and_type(
    store: Store, wanted: Schema, expected: dict[str, int], rows_then: list[tuple[Any, ...]]
) -> None:
    create(store, "ods.orders", rows((1, "a", 5)))
    base = store.state()[ORDERS].location
    made = evolve_table(store, ORDERS, base, wanted)
    assert list(ids(store, made).items()) == list(expected.items())
    assert (made == base) == (list(expected.items()) == [("id", 1), ("day", 2), ("amount", 3)])
    assert not any(field.required for field in table_metadata.load_metadata(store, made).schema().fields)
    if rows_then:
        assert read(store, made) == rows_then
    assert evolve_table(store, ORDERS, made, wanted) == made
    back = evolve_table(store, ORDERS, made, shape(id=LONG, day=TEXT, amount=LONG))
    kept = [name for name in ("id", "day", "amount") if name in expected and expected[name] < 4]
    assert all(ids(store, back)[name] == expected[name] for name in kept)
    assert all(number > 3 for name, number in ids(store, back).items() if name.upper() not in map(str.upper, expected))


WIDER: dict[str, tuple[IcebergType, IcebergType, bool]] = {
    "int to long": (IntegerType(), LONG, True),
    "float to double": (FloatType(), DoubleType(), True),
    "decimal": (DecimalType(9, 2), DecimalType(12, 2), True),
    "decimal of another scale": (DecimalType(9, 2), DecimalType(12, 3), False),
    "long to int": (LONG, IntegerType(), False),
    "int to double": (IntegerType(), DoubleType(), False),
    "an equal struct": (StructType(NestedField(7, "a", LONG)), StructType(NestedField(9, "a", LONG)), True),
    "another struct": (StructType(NestedField(7, "a", LONG)), StructType(NestedField(7, "b", LONG)), False),
    "a wider element": (ListType(7, IntegerType(), True), ListType(7, LONG, True), False),
    "an equal map": (MapType(1, TEXT, 2, LONG, True), MapType(5, TEXT, 6, LONG, False), True),
}


@pytest.mark.parametrize(("old", "new", "keeps"), WIDER.values(), ids=WIDER)
def test_a_type_that_files_can_be_read_in_keeps_its_id(
    store: Store, old: IcebergType, new: IcebergType, keeps: bool
) -> None:
    base = evolve_table(store, ORDERS, None, shape(x=old, y=TEXT))
    before = table_metadata.load_metadata(store, base)
    made = evolve_table(store, ORDERS, base, shape(x=new, y=TEXT))
    metadata = table_metadata.load_metadata(store, made)
    field, was = metadata.schema().find_field("x"), before.schema().find_field("x")
    assert (field.field_id == was.field_id) == keeps
    if keeps and not new.is_primitive:
        assert field.field_type == was.field_type and made == base
    assert len(metadata.schema().field_ids) == len(set(metadata.schema().field_ids))
    assert keeps or min(set(metadata.schema().field_ids) - {2}) > before.last_column_id
    assert metadata.last_column_id == max(before.last_column_id, *metadata.schema().field_ids)


def test_partitions_order_and_properties(store: Store) -> None:
    wanted = shape(id=LONG, day=TEXT)
    base = evolve_table(store, ORDERS, None, wanted, spec=by("day"), sort=sorted_by("id"), properties={"a": "1"})
    first = table_metadata.load_metadata(store, base)
    assert first.properties["a"] == "1" and first.properties["gc.enabled"] == "false"
    same = evolve_table(store, ORDERS, base, wanted, spec=by("day"), sort=sorted_by("id"), properties={"a": "1"})
    assert same == base
    other = evolve_table(store, ORDERS, base, wanted, spec=by("id", BucketTransform(4)), properties={"a": "2"})
    second = table_metadata.load_metadata(store, other)
    assert [(field.source_id, field.field_id) for field in second.spec().fields] == [(1, 1001)]
    assert second.default_sort_order_id == 0 and second.properties["a"] == "2"
    again = table_metadata.load_metadata(
        store, evolve_table(store, ORDERS, other, wanted, spec=by("day"), sort=sorted_by("id"))
    )
    assert (again.default_spec_id, again.default_sort_order_id) == (first.default_spec_id, first.default_sort_order_id)
    assert len(again.partition_specs) == len(second.partition_specs) == 2


def test_rows_written_before_and_after_are_read_together(store: Store) -> None:
    create(store, "ods.orders", rows((1, "a", 5)), by="day")
    base = store.state()[ORDERS].location
    made = evolve_table(store, ORDERS, base, shape(day=TEXT, id=LONG, amount=LONG), spec=by("amount"))
    more = parquet_writer.write_rows(store, table_metadata.load_metadata(store, made), rows((2, "b", 6)).to_batches())
    assert read(store, snapshots.stage_version(store, made, VersionEdit(added=more))) == [("a", 1, 5), ("b", 2, 6)]
    assert fsck(store).is_clean


def test_spark_overwrites_what_was_reshaped(store: Store, spark: "SparkSession") -> None:
    """Also where the column that the old files are partitioned by is gone, or has another type."""
    from runnel.spark.catalog_conf import CatalogSettings
    from runnel.spark.session import create_slot_session

    create(store, "ods.orders", rows((1, "a", 5), (2, "b", 6)), by="day")
    commit, state = store.commit(), store.state()
    slot = slots.acquire_slot(store.db, "reshape", 1, commit, state)
    session = create_slot_session(
        spark, CatalogSettings(slot.name, store.db.url.render_as_string(hide_password=False), store.warehouse)
    )
    base, table = state[ORDERS].location, f"{slot.name}.ods.orders"
    for wanted, values, spec in (
        (shape(id=LONG, amount=LONG), "(7, 8)", None),
        (shape(id=LONG, day=LONG), "(7, 9)", by("day")),
        (shape(day=TEXT, id=LONG), "('x', 7)", by("id", BucketTransform(2))),
    ):
        options = {"spec": spec} if spec else {}
        slots.place_tables(store.db, slot, {ORDERS: evolve_table(store, ORDERS, base, wanted, **options)})
        session.catalog.refreshTable(table)
        session.sql(f"insert into {table} values {values}")
        now = slots.read_location(store.db, slot, ORDERS)
        assert now is not None
        found = sorted((tuple(row) for row in session.table(table).collect()), key=repr)
        assert found == sorted(read(store, now), key=repr) and len(found) == 3
        session.sql(f"insert overwrite {table} select * from (values {values})")
        session.sql(f"delete from {table} where true") if spec is None else None
        session.table(f"{table}.files").collect()
    slots.release(store.db, slot)
