"""A side of a change has the rows of some files of a version, read as they are read there."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import LongType, StringType

from runnel.lake.diff.file_delta import compute_file_delta, find_differing_files
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries, read_manifests
from runnel.lake.iceberg.partial_tables import PartialTableError, stage_partial_table
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.leases import slots
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import (
    columns,
    compact,
    delete_rows,
    equality_delete,
    evolve,
    files,
    overwrite,
    partitions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T, ORDERS = "ods.orders", TableName("ods", "orders")
Change = Callable[[Store], object]
Rows = list[tuple[Any, ...]]


def start(store: Store) -> str:
    create(store, T, rows((1, "a", 1), (2, "b", 2), (3, "b", 3)), by="day")
    return store.state()[ORDERS].location


def other_spec(store: Store) -> None:
    evolve(store, T, partitions(lambda update: update.add_identity("amount")))
    add(store, T, rows((4, "a", 4)))


def renamed(store: Store) -> None:
    add(store, T, rows((4, "a", 4)))
    evolve(store, T, columns(lambda update: update.rename_column("amount", "total").add_column("note", StringType())))


def deleted(store: Store) -> None:
    (file,) = files(store, T, day="b")
    delete_rows(store, T, {file.path: [0]})


CASES: dict[str, tuple[Change, Rows, Rows]] = {
    # what is done, rows of the removed side, rows of the added side
    "nothing": (lambda store: None, [], []),
    "append": (lambda store: add(store, T, rows((4, "a", 4))), [], [(4, "a", 4)]),
    "overwrite a day": (lambda store: overwrite(store, T, rows((9, "a", 9)), day="a"), [(1, "a", 1)], [(9, "a", 9)]),
    "another partition spec": (other_spec, [], [(4, "a", 4)]),
    "a renamed and a new column": (renamed, [], [(4, "a", 4, None)]),
    "position deletes": (deleted, [(2, "b", 2), (3, "b", 3)], [(3, "b", 3)]),
    "compacted": (lambda store: compact(store, T, day="b"), [(2, "b", 2), (3, "b", 3)], [(2, "b", 2), (3, "b", 3)]),
}


def sides(store: Store, before: str) -> list[str]:
    """Return the removed and the added side between a version and now."""
    after = store.state()[ORDERS].location
    parts = find_differing_files(store, before, after, compute_file_delta(store, before, after))
    return [stage_partial_table(store, at, part) for at, part in zip((before, after), parts, strict=True)]


def read(store: Store, location: str) -> Rows:
    return sorted(connect_duckdb().execute(rows_sql(store, table_metadata.load_metadata(store, location))).fetchall())


@pytest.mark.parametrize(("change", "removed", "added"), CASES.values(), ids=CASES)
def test_rows_of_each_side(store: Store, change: Change, removed: Rows, added: Rows) -> None:
    before = start(store)
    change(store)
    assert [read(store, location) for location in sides(store, before)] == [removed, added]


def test_a_side_is_the_version_but_for_its_files(store: Store) -> None:
    start(store)
    other_spec(store)
    renamed(store)
    deleted(store)
    location = store.state()[ORDERS].location
    version = table_metadata.load_metadata(store, location)
    made = table_metadata.load_metadata(store, stage_partial_table(store, location, list(read_entries(store, version))))
    for name in ("schemas", "partition_specs", "sort_orders", "properties", "table_uuid", "location", "last_column_id"):
        assert getattr(made, name) == getattr(version, name), name
    assert made.current_schema_id == version.current_schema_id and len(made.snapshots) == 1
    kept = {entry.path: (entry.sequence, entry.file.spec_id) for entry in read_entries(store, version)}
    assert {entry.path: (entry.sequence, entry.file.spec_id) for entry in read_entries(store, made)} == kept
    kinds = [(manifest.partition_spec_id, manifest.content) for manifest in read_manifests(store, made)]
    assert len(kinds) == len(set(kinds)) == 3  # data of two specs, and deletes
    assert fsck(store).is_clean


def test_equality_deletes_are_left_to_a_full_computation(store: Store) -> None:
    before = start(store)
    (file,) = files(store, T, day="a")
    publish_edit(store, "main", ORDERS, lambda version: VersionEdit(added=[equality_delete(file)]), "delete by value")
    after = store.state()[ORDERS].location
    with pytest.raises(PartialTableError, match="deleted by value"):
        stage_partial_table(store, after, compute_file_delta(store, before, after).added)


def all_of_it(store: Store) -> None:
    other_spec(store)
    evolve(store, T, columns(lambda update: update.delete_column("id")))
    evolve(store, T, columns(lambda update: update.add_column("id", LongType())))
    deleted(store)
    overwrite(store, T, None, day="a")


def test_spark_reads_a_side_from_a_slot(store: Store, spark: "SparkSession") -> None:
    """With another partition spec, a column dropped and added anew, deletes by position, and no file at all."""
    from runnel.spark.catalog_conf import CatalogSettings
    from runnel.spark.session import create_slot_session

    before = start(store)
    all_of_it(store)
    removed, added = sides(store, before)
    empty = stage_partial_table(store, before, [])
    slot = slots.acquire_slot(store.db, "sides", 1, store.commit(), {})
    names = {TableName("part", name): at for name, at in (("removed", removed), ("added", added), ("empty", empty))}
    slots.place_tables(store.db, slot, names)
    session = create_slot_session(
        spark, CatalogSettings(slot.name, store.db.url.render_as_string(hide_password=False), store.warehouse)
    )
    for table, location in names.items():
        found = sorted((tuple(row) for row in session.table(f"{slot.name}.{table}").collect()), key=repr)
        assert found == sorted(read(store, location), key=repr), table
    assert read(store, removed) == [(1, "a", 1), (2, "b", 2), (3, "b", 3)] and read(store, added) == [("b", 3, None)]
    slots.release(store.db, slot)
