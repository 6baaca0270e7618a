"""Answers are streamed, look the same from both engines, and hold nothing once they are closed."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.store import Store
from runnel.query.engine import run_query
from runnel.query.engines import duckdb_instance
from runnel.query.engines.delayed_pin import DelayedPin
from tests.lake.factories import create

VALUES = {
    "double": (pa.array([1.5, float("nan"), float("inf"), float("-inf"), None]), [1.5, "NaN", "Infinity", "-Infinity"]),
    "decimal": (pa.array([Decimal("12.50"), Decimal("-0.01"), None], pa.decimal128(12, 2)), ["12.50", "-0.01"]),
    "binary": (pa.array([b"\x00\xff", b"", None], pa.binary()), ["AP8=", ""]),
    "date": (pa.array([date(2024, 2, 29), None]), ["2024-02-29"]),
    "timestamp": (
        pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        ["2024-02-29T12:00:00+00:00"],
    ),
    "timestamp_ntz": (pa.array([datetime(1969, 7, 20, 20, 17, 40, 5), None]), ["1969-07-20T20:17:40.000005"]),
    "list": (pa.array([[1, None], []], pa.list_(pa.int32())), [[1, None], []]),
    "map": (pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float64())), [{"k": 1.5}, {}]),
    "map by number": (pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())), [[[1, "x"]]]),
    "struct": (
        pa.array([{"a": Decimal("1.0"), "b": None}], pa.struct([("a", pa.decimal128(5, 1)), ("b", pa.binary())])),
        [{"a": "1.0", "b": None}],
    ),
}


@pytest.mark.parametrize(("values", "expected"), VALUES.values(), ids=VALUES)
def test_json_rows_hold_what_json_can(store: Store, values: pa.Array, expected: list[object]) -> None:
    create(store, "ods.t", pa.table({"n": pa.array(range(len(values)), pa.int64()), "v": values}))
    found = [row[0] for row in run_query(store, "select v from ods.t order by n").json_rows()]
    assert json.loads(json.dumps(found, allow_nan=False)) == expected + [None] * (len(values) - len(expected))


def test_an_answer_has_many_forms(store: Store) -> None:
    create(store, "ods.t", pa.table({"a": [1, 2], "b": ["x", None]}))
    with run_query(store, "select a, b, a as A, b as b from ods.t order by 1") as result:
        assert result.columns == ["a", "b", "A", "b"]
        assert result.rows() == [(1, "x", 1, "x"), (2, None, 2, None)]
        assert result.table().num_rows == 2
        assert list(result.df().columns) == result.columns
        assert result.engine == "duckdb" and result.reason is None
        assert result.at == store.commit().id and result.seconds > 0
        assert result.schema.types == [pa.int64(), pa.string(), pa.int64(), pa.string()]


def test_a_stream_is_read_once(store: Store) -> None:
    result = run_query(store, "select 1 as a")
    assert list(result.json_rows()) == [[1]]
    with pytest.raises(Mistake, match="RESULT_READ"):
        result.table()
    closed = run_query(store, "select 1 as a")
    closed.close()
    with pytest.raises(Mistake, match="RESULT_READ"):
        list(closed.batches())


def test_no_rows_still_have_columns(store: Store) -> None:
    create(store, "ods.t", pa.table({"a": [1]}))
    found = run_query(store, "select a, a + 1 as b from ods.t where a > 5").table()
    assert found.num_rows == 0 and found.schema.names == ["a", "b"]


def test_closing_early_gives_everything_back(store: Store) -> None:
    create(store, "ods.n", pa.table({"a": range(3000)}))
    with run_query(store, "select x.a, y.a as b from ods.n x cross join ods.n y") as result:
        next(result.batches())
        with duckdb_instance.open_instance(store.warehouse) as found:
            assert found.active_queries == 2
    with duckdb_instance.open_instance(store.warehouse) as found:
        assert found.active_queries == 1
    forgotten = run_query(store, "select x.a, y.a as b from ods.n x cross join ods.n y")
    del forgotten
    with duckdb_instance.open_instance(store.warehouse) as found:
        assert found.active_queries == 1


def test_a_long_read_pins_its_commit(store: Store) -> None:
    import time

    def pins() -> list[str | None]:
        return list(store.db.read(lambda c: c.execute(schema.pins.select()).mappings().all()))

    hold = DelayedPin(store.db, store.commit().id, after_seconds=0)
    while not pins():
        time.sleep(0.01)
    assert [(pin["kind"], pin["commit_id"]) for pin in pins()] == [("read", store.commit().id)]
    hold.release()
    hold.release()
    assert not pins()
    DelayedPin(store.db, store.commit().id, after_seconds=60).release()
    assert not pins()


STREAM = """
import sys
from runnel.lake.store import Store
from runnel.query.engine import run_query

def resident():
    with open("/proc/self/statm") as found:
        return int(found.read().split()[1]) * 4096

store = Store.open(f"sqlite:///{sys.argv[1]}/lake/catalog.db", f"{sys.argv[1]}/lake/warehouse")
with run_query(store, "select x.a, y.s, concat(x.s, y.s) as t from ods.n x cross join ods.n y") as result:
    count = most = start = 0
    for batch in result.batches():
        start = start or resident()
        count, most = count + batch.num_rows, max(most, resident())
print(count, most - start)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells memory from /proc")
def test_ten_million_rows_do_not_fill_memory(store: Store, tmp_path: Path) -> None:
    create(store, "ods.n", pa.table({"a": range(3163), "s": [f"number {n:08}" for n in range(3163)]}))
    line = [sys.executable, "-c", STREAM, str(tmp_path)]
    count, grown = map(int, subprocess.run(line, check=True, capture_output=True, text=True).stdout.split())
    assert count == 3163**2 > 10_000_000  # about 800 MB
    assert grown < 300 * 2**20
