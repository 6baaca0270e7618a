"""DuckDB reads the files of a version as Iceberg promises: by field id, with deletes, through all changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import (
    columns,
    compact,
    data_file,
    delete_rows,
    equality_delete,
    evolve,
    files,
    metadata,
    partitions,
    position_delete,
)

T = "ods.orders"


def narrow(**values: list[Any]) -> pa.Table:
    types = {"i": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2)}
    return pa.table({name: pa.array(held, types[name]) for name, held in values.items()})


CHANGES: dict[str, tuple[Callable[[Any], object], list[tuple[Any, ...]]]] = {
    "renamed": (lambda u: u.rename_column("day", "on_day"), [(1, "d1", 5)]),
    "dropped": (lambda u: u.delete_column("day"), [(1, 5)]),
    "added": (lambda u: u.add_column("note", StringType()), [(1, "d1", 5, None)]),
    "moved": (lambda u: u.move_first("amount"), [(5, 1, "d1")]),
    "renamed crosswise": (
        lambda u: (u.rename_column("id", "was"), u.rename_column("amount", "id")),
        [(1, "d1", 5)],
    ),
    "named like a virtual column": (
        lambda u: (u.rename_column("id", "filename"), u.rename_column("amount", "file_row_number")),
        [(1, "d1", 5)],
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_columns_are_found_by_id(store: Store, change: Callable[[Any], object], expected: list[Any]) -> None:
    create(store, T, rows((1, "d1", 5)))
    evolve(store, T, columns(change))
    assert read(store, T) == expected
    delete_rows(store, T, {files(store, T)[0].path: [0]})
    assert read(store, T) == []


def test_a_dropped_name_used_again_is_another_column(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)))
    evolve(store, T, columns(lambda u: u.delete_column("amount")))
    evolve(store, T, columns(lambda u: u.add_column("amount", LongType())))
    add(store, T, rows((2, "d2", 7)))
    assert read(store, T) == [(1, "d1", None), (2, "d2", 7)]


def test_types_become_wider(store: Store) -> None:
    from decimal import Decimal

    create(store, T, narrow(i=[1], f=[0.5], d=[Decimal("1.25")]))

    def widen(update: Any) -> None:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(20, 2))

    evolve(store, T, columns(widen))
    more = pa.table({"i": [2**40], "f": [0.25], "d": pa.array([Decimal("123456789.75")], pa.decimal128(20, 2))})
    add(store, T, more)
    assert read(store, T) == [(1, 0.5, Decimal("1.25")), (2**40, 0.25, Decimal("123456789.75"))]


def test_files_of_several_partition_specs_are_read_together(store: Store) -> None:
    create(store, T, rows((1, "d1", 5)), by="day")
    evolve(store, T, partitions(lambda u: u.remove_field("day").add_field("id", IdentityTransform(), "bucket")))
    add(store, T, rows((2, "d1", 6), (3, "d2", 7)))
    evolve(store, T, partitions(lambda u: u.remove_field("bucket").add_field("amount", IdentityTransform(), "amount")))
    add(store, T, rows((4, "d3", 8)))
    assert read(store, T) == [(1, "d1", 5), (2, "d1", 6), (3, "d2", 7), (4, "d3", 8)]
    old = next(entry for entry in files(store, T) if entry.file.spec_id == 0)
    delete_rows(store, T, {old.path: [0]})
    assert read(store, T) == [(2, "d1", 6), (3, "d2", 7), (4, "d3", 8)]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as the manifest": str,
    "file:": lambda path: f"file:{path}",
    "file://": lambda path: f"file://{path}",
}


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
def test_position_deletes_apply_however_they_spell_the_file(store: Store, spelled: Callable[[str], str]) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6), (3, "d2", 7)), by="day")
    made = position_delete(files(store, T, day="d1")[0], [1], spelled=spelled)
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[made]), "delete")
    assert read(store, T) == [(1, "d1", 5), (3, "d2", 7)]


def test_deletes_count_in_their_partition_and_for_older_files_only(store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d2", 6)), by="day")
    one, two = files(store, T, day="d1")[0], files(store, T, day="d2")[0]
    # Another partition's delete names this file: Iceberg ignores it.
    stray = position_delete(two, [0], spelled=lambda path: one.path)
    # A delete that is older than the file, because the file was taken in again later, does not apply either.
    delete_rows(store, T, {two.path: [0]})
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[stray], removed=[two]), "stray")
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[two.file]), "again")
    assert read(store, T) == [(1, "d1", 5), (2, "d2", 6)]


def test_a_file_taken_from_another_version_keeps_its_deletes(store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6)))
    old = files(store, T)[0]
    delete_rows(store, T, {old.path: [1]})
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(removed=[old]), "gone")
    assert read(store, T) == []
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(reused=[old]), "back")
    assert read(store, T) == [(1, "d1", 5)]


def test_places_tell_file_and_position(store: Store) -> None:
    create(store, T, rows((1, "d1", 5), (2, "d1", 6)))
    path = files(store, T)[0].path
    delete_rows(store, T, {path: [0]})
    found = connect_duckdb().execute(rows_sql(store, metadata(store, T), with_positions=True)).fetchall()
    assert found == [(2, "d1", 6, path, 1)]


def registered(folder: Path, store: Store, found: list[tuple[str, pa.Table]], by: str | None = None) -> None:
    """Register Parquet files without field ids, in place, each of the partition that its folder says."""
    create(store, T, rows((1, "d1", 5)), by=by)
    mapping = create_mapping_from_schema(metadata(store, T).schema()).model_dump_json()
    evolve(store, T, lambda transaction: transaction.set_properties(**{"schema.name-mapping.default": mapping}))
    made = []
    for name, table in found:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        partition = Record(path.parent.name.partition("=")[2]) if by else Record()
        made.append(data_file(str(path), partition, table.num_rows, spec=0))
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=made), "register")


REGISTERED = {
    "columns in another order, one missing": ("a.parquet", {"amount": [7], "id": [2]}, (2, None, 7)),
    "a narrower type": ("a.parquet", {"id": pa.array([2], pa.int32()), "day": ["d2"]}, (2, "d2", None)),
    "a column that the table lacks": ("a.parquet", {"id": [2], "other": [1]}, (2, None, None)),
    "a path that looks like a pattern": ("[b] *?/{a}.parquet", {"id": [2]}, (2, None, None)),
}


@pytest.mark.parametrize(("name", "held", "expected"), REGISTERED.values(), ids=REGISTERED)
def test_registered_parquet_is_read_by_name(
    store: Store, tmp_path: Path, name: str, held: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    (tmp_path / "b xy").mkdir()
    pq.write_table(pa.table({"id": [99]}), tmp_path / "b xy" / "{a}.parquet")
    registered(tmp_path, store, [(name, pa.table(held))])
    assert read(store, T) == [(1, "d1", 5), expected]
    evolve(store, T, columns(lambda u: u.rename_column("id", "order_id")))
    assert read(store, T) == [(1, "d1", 5), expected]


def test_a_registered_file_without_its_partition_column_gets_its_value(store: Store, tmp_path: Path) -> None:
    found = [(f"day={day}/a.parquet", pa.table({"id": [number]})) for number, day in ((2, "d2"), (3, "d3"))]
    registered(tmp_path, store, found, by="day")
    assert read(store, T) == [(1, "d1", 5), (2, "d2", None), (3, "d3", None)]
    place = str(tmp_path / "day=d2" / "a.parquet")
    delete_rows(store, T, {place: [0]})
    assert read(store, T) == [(1, "d1", 5), (3, "d3", None)]


NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.struct([("c", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


def nested(store: Store) -> None:
    create(store, T, pa.Table.from_pylist([{"s": {"a": 1, "b": "x"}, "l": [{"c": 2}], "m": [("k", 3)]}], schema=NESTED))


def test_nested_values_are_read(store: Store) -> None:
    nested(store)
    evolve(store, T, columns(lambda u: u.rename_column("s", "renamed")))
    assert read(store, T) == [({"a": 1, "b": "x"}, [{"c": 2}], {"k": 3})]


def test_fields_that_were_added_inside_are_null_in_older_files(store: Store) -> None:
    nested(store)
    add(store, T, pa.Table.from_pylist([{"s": None, "l": [None], "m": None}], schema=NESTED))

    def change(update: Any) -> object:
        return update.add_column(("s", "z"), LongType()).add_column(("l", "element", "d"), StringType())

    evolve(store, T, columns(change))
    assert read(store, T) == [
        (None, [None], None),
        ({"a": 1, "b": "x", "z": None}, [{"c": 2, "d": None}], {"k": 3}),
    ]


UNSCANNABLE: dict[str, Callable[[Any], object]] = {
    "a field renamed": lambda u: u.rename_column(("s", "a"), "z"),
    "a field dropped": lambda u: u.delete_column(("s", "a")),
    "a field dropped and added again": lambda u: u.delete_column(("s", "a")).add_column(("s", "z"), LongType()),
    "a field in a list widened": lambda u: u.update_column(("l", "element", "c"), LongType()),
}


@pytest.mark.parametrize("change", UNSCANNABLE.values(), ids=UNSCANNABLE)
def test_nested_evolution_is_left_to_spark(store: Store, change: Callable[[Any], object]) -> None:
    nested(store)
    evolve(store, T, columns(change))
    with pytest.raises(DuckdbScanError, match="fields inside"):
        read(store, T)


def test_what_duckdb_would_misread_is_left_to_spark(store: Store, tmp_path: Path) -> None:
    create(store, T, rows((1, "d1", 5)))
    add(store, T, rows((2, "d1", 5)))
    compact(store, T)
    data = files(store, T)[0]
    publish_edit(
        store, "main", TableName.parse(T), lambda v: VersionEdit(added=[equality_delete(data)]), "delete by value"
    )
    with pytest.raises(DuckdbScanError, match="equality deletes"):
        read(store, T)


def test_a_foreign_file_without_ids_or_mapping_is_left_to_spark(store: Store, tmp_path: Path) -> None:
    create(store, T, rows((1, "d1", 5)))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [2]}), path)
    made = data_file(str(path), Record(), 1, spec=0)
    publish_edit(store, "main", TableName.parse(T), lambda version: VersionEdit(added=[made]), "register")
    with pytest.raises(DuckdbScanError, match="has no field ids"):
        read(store, T)


def test_a_lake_whose_folder_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder = tmp_path / "[a] 100%20?*"
    store = Store.open(f"sqlite:///{tmp_path}/catalog.db", f"{folder}/warehouse")
    create(store, T, rows((1, "d 1", 5), (2, "d/2*", 6)), by="day")
    delete_rows(store, T, {files(store, T, day="d 1")[0].path: [0]})
    assert read(store, T) == [(2, "d/2*", 6)]
    table_metadata.clear_cache()
    assert read(store, T) == [(2, "d/2*", 6)]
    store.close()
