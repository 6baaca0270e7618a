"""Parquet registered where it is: read by Runnel and by PyIceberg, never copied, never taken for something else."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.load.load import LoadOptions, load_files
from runnel.errors import Mistake
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.conftest import Loading, Writing
from tests.lake.factories import read

ORDERS = TableName.parse("ods.orders")


def write(path: str, **columns: Any) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def csv(path: str) -> str:
    Path(path).write_text("id\n1\n")
    return path


def both(store: Store) -> list[tuple[Any, ...]]:
    """Return the rows as DuckDB reads them, having compared them with PyIceberg's."""
    rows = sorted(read(store, "ods.orders"))
    table = table_metadata.open_table(store, ORDERS, store.state()[ORDERS].location)
    theirs = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(theirs) == rows
    return rows


def live(store: Store) -> list[Any]:
    return list(read_entries(store, table_metadata.load_metadata(store, store.state()[ORDERS].location)))


def test_files_are_registered_with_size_and_bounds(store: Store, data: Writing, loading: Loading):
    write("a b.parquet", id=[1, 2], v=["x", None])
    write("[b].parquet", id=[3], v=["y"])
    assert loading("*.parquet", in_place=True).rows == 3
    assert both(store) == [(1, "x"), (2, None), (3, "y")]
    first = next(entry for entry in live(store) if "a b" in entry.path)
    assert first.path == str(Path("a b.parquet").resolve())
    assert first.file.file_size_in_bytes == Path("a b.parquet").stat().st_size
    assert (first.file.record_count, first.file.null_value_counts[2]) == (2, 1)
    assert first.file.lower_bounds[1] == (1).to_bytes(8, "little")


def test_hive_paths_become_partitions(store: Store, data: Writing, loading: Loading):
    write("day=2026-01-02/shop=a%20b/x.parquet", id=[1])
    write("day=2026-01-03/shop=c/x.parquet", id=[2])
    write("day=__HIVE_DEFAULT_PARTITION__/shop=c/x.parquet", id=[3])
    loading("**/*.parquet", in_place=True)
    assert both(store) == [(1, date(2026, 1, 2), "a b"), (2, date(2026, 1, 3), "c"), (3, None, "c")]
    write("day=2026-01-04/shop=d/x.parquet", id=[4])
    loading("day=2026-01-04/*/*.parquet", in_place=True)
    assert (4, date(2026, 1, 4), "d") in both(store)
    write("day=2026-02-30/shop=d/x.parquet", id=[5])
    with pytest.raises(Mistake, match=r"path, column `day`: '2026-02-30': not a date"):
        loading("day=2026-02-30/*/*.parquet", in_place=True, on_bad="drop")
    table = table_metadata.open_table(store, ORDERS, store.state()[ORDERS].location)
    assert table.scan(row_filter="day = '2026-01-03'").to_arrow().column("id").to_pylist() == [2]


def test_registered_and_copied_rows_live_together(store: Store, data: Writing, loading: Loading):
    loading(data("a.csv", "id,v\n1,1\n"), schema="id int, v float")
    write("b.parquet", ID=pa.array([2], pa.int32()), w=["new"])
    write("c.parquet", Id=pa.array([2**40], pa.int64()), v=pa.array([0.5], pa.float32()))
    loading("b.parquet", in_place=True)
    loading("c.parquet", in_place=True)
    assert both(store) == [(1, 1.0, None), (2, None, "new"), (2**40, 0.5, None)]
    loading(data("d.csv", "id,x\n4,5\n"))
    assert both(store) == [(1, 1.0, None, None), (2, None, "new", None), (4, None, None, 5), (2**40, 0.5, None, None)]


def test_partition_values_come_from_bounds(store: Store, data: Writing, loading: Loading):
    write("a.parquet", id=[1, 1], at=[datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 30, tzinfo=UTC)])
    loading("a.parquet", in_place=True, partition=["id", "month(at)"])
    assert live(store)[0].file.partition[0] == 1
    assert live(store)[0].file.partition[1] == 56 * 12
    assert len(both(store)) == 2


def test_nested_columns(store: Store, data: Writing, loading: Loading):
    write("a.parquet", id=[1], l=[[1, 2]], s=[{"a": 1}])
    loading("a.parquet", in_place=True)
    write("b.parquet", id=[2], l=[[3]])
    loading("b.parquet", in_place=True)
    assert both(store) == [(1, [1, 2], {"a": 1}), (2, [3], None)]


def test_ids_that_agree_are_taken(store: Store, data: Writing, loading: Loading):
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(n)}) for n, name in enumerate("ab", start=1)]
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), "a.parquet")
    loading("a.parquet", in_place=True)
    assert both(store) == [(1, 2)]


def test_a_link_is_registered_as_what_it_points_to(store: Store, data: Writing, loading: Loading):
    write("real/a.parquet", id=[1])
    Path("link.parquet").symlink_to("real/a.parquet")
    loading("link.parquet", in_place=True)
    assert live(store)[0].path == str(Path("real/a.parquet").resolve())


def test_replace_registers_again(store: Store, data: Writing, loading: Loading):
    write("a.parquet", id=[1])
    loading("a.parquet", in_place=True)
    loading("a.parquet", in_place=True, replace=True)
    assert both(store) == [(1,)]


REFUSED = {
    "not Parquet": (lambda: csv("b.csv"), {}, "LOAD_IN_PLACE"),
    "registered already": (lambda: None, {}, "LOAD_REGISTERED"),
    "another type": (lambda: write("b.parquet", id=["x"]), {}, "LOAD_TYPE"),
    "a column left out": (lambda: write("b.parquet", id=[1], w=[1]), {"on_new_column": "ignore"}, "LOAD_IN_PLACE"),
    "nanoseconds": (lambda: write("b.parquet", id=[1], t=pa.array([1], pa.timestamp("ns"))), {}, "LOAD_IN_PLACE"),
    "unsigned": (lambda: write("b.parquet", id=pa.array([1], pa.uint32())), {}, "LOAD_IN_PLACE"),
    "path names no partition": (lambda: write("v=1/b.parquet", id=[1]), {}, "LOAD_IN_PLACE_PARTITION"),
    "several values of a partition": (
        lambda: write("b.parquet", id=[1, 2]),
        {"table": "ods.other", "partition": ["id"]},
        "LOAD_IN_PLACE_PARTITION",
    ),
    "a partition in no order": (
        lambda: write("b.parquet", id=[1, 1]),
        {"table": "ods.other", "partition": ["bucket(2, id)"]},
        "LOAD_IN_PLACE_PARTITION",
    ),
    "nulls where required": (
        lambda: write("b.parquet", id=[1, None]),
        {"table": "ods.other", "schema": "id long not null"},
        "LOAD_IN_PLACE",
    ),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open a lake with a registered file; no refused load changes it."""
    folder = tmp_path_factory.mktemp("filled")
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    load_files(store, ORDERS, [write(f"{folder}/a.parquet", id=[1])], LoadOptions(in_place=True))
    yield store
    store.close()


@pytest.mark.parametrize(("make", "options", "code"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_misread_is_refused(filled: Store, data: Writing, make, options, code):
    before = filled.commit()
    name = make() or live(filled)[0].path
    options = dict(options)
    table = TableName.parse(options.pop("table", "ods.orders"))
    with pytest.raises(Mistake) as caught:
        load_files(filled, table, [name], LoadOptions(in_place=True, **options))
    assert (caught.value.code, filled.commit()) == (code, before)


def test_files_of_the_lake_itself_are_refused(store: Store, data: Writing, loading: Loading):
    loading(write("a.parquet", id=[1]))
    with pytest.raises(Mistake, match="warehouse") as caught:
        loading(live(store)[0].path, table="ods.copy", in_place=True)
    assert caught.value.code == "LOAD_IN_PLACE"


def test_ids_of_another_table_are_refused(store: Store, data: Writing, loading: Loading):
    field = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"})
    pq.write_table(pa.table([[1]], schema=pa.schema([field])), "a.parquet")
    with pytest.raises(Mistake, match="field ids"):
        loading("a.parquet", in_place=True)
