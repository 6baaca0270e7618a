"""Pieces of rows: equal keys meet in one bucket, and every type survives the way through bytes."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

import duckdb
import pytest
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, StringType

from runnel.lake.scan import row_pieces
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.row_pieces import decode_piece, load_pieces, normalize_key, split_rows
from runnel.lake.work_runner import ProcessRunner
from tests.lake.pickling_runner import PicklingRunner

EQUAL_KEYS: dict[str, tuple[str, IcebergType, str, IcebergType]] = {
    "null": ("NULL::INTEGER", IntegerType(), "NULL::BIGINT", LongType()),
    "NaN": ("'nan'::DOUBLE", DoubleType(), "-('nan'::FLOAT)", FloatType()),
    "zero": ("-0.0::DOUBLE", DoubleType(), "0.0::FLOAT", FloatType()),
    "negative integer": ("-7::INTEGER", IntegerType(), "-7::BIGINT", LongType()),
    "fraction": ("0.1::FLOAT", FloatType(), "0.1::FLOAT::DOUBLE", DoubleType()),
    "decimal": ("-1.5::DECIMAL(4,2)", DecimalType(4, 2), "-1.5::DECIMAL(30,2)", DecimalType(30, 2)),
    "text": ("'a'", StringType(), "'a'", StringType()),
}
ALL_TYPES = (
    "SELECT uuid() AS u, TIME '10:00:00.000001' AS t, TIMESTAMPTZ '2020-01-01 00:00:00.000001+02' AS z,"
    " TIMESTAMP '1500-01-01' AS s, MAP {'a': [1, NULL], 'b': NULL} AS m, {x: 1::SMALLINT, y: -0.0::DOUBLE} AS st,"
    " 'a\\x00'::BLOB AS b, 1.10::DECIMAL(20,3) AS d, NULL::DATE AS n, 'nan'::FLOAT AS f, true AS o, i"
    " FROM range(3) AS r(i)"
)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect_duckdb() as connection:
        yield connection


@pytest.mark.parametrize(("left", "left_kind", "right", "right_kind"), EQUAL_KEYS.values(), ids=EQUAL_KEYS)
def test_equal_keys_have_equal_buckets(
    con: duckdb.DuckDBPyConnection, left: str, left_kind: IcebergType, right: str, right_kind: IcebergType
) -> None:
    buckets = [
        bucket
        for value, kind in ((left, left_kind), (right, right_kind))
        for bucket, _ in split_rows(con, f"SELECT {value} AS k, 'b' AS l", [normalize_key("k", kind), "l"], 1_000_000)
    ]
    assert len(buckets) == 2
    assert buckets[0] == buckets[1]


def test_all_types_survive(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(f"CREATE TEMP TABLE sent AS {ALL_TYPES}")
    con.execute("CREATE TEMP TABLE arrived AS FROM sent WHERE false")
    load_pieces(con, ["arrived"], [piece for _, piece in split_rows(con, "FROM sent", ["i", "m"], 2)])
    assert con.sql("FROM arrived").types == con.sql("FROM sent").types
    texts = [
        con.execute(f"SELECT CAST(t AS VARCHAR) FROM {table} AS t ORDER BY i").fetchall()
        for table in ("sent", "arrived")
    ]
    assert texts[0] == texts[1]


def test_sides_are_loaded_into_their_tables_and_pieces_are_small(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pieces, "PIECE_BYTES", 1000)
    monkeypatch.setattr(row_pieces, "_INSERTED_BYTES", 5000)
    con.execute("CREATE TEMP TABLE a (i BIGINT, t VARCHAR); CREATE TEMP TABLE b (k BIGINT)")
    pieces = [
        *split_rows(con, "SELECT i, repeat('x', 100) FROM range(500) AS r(i)", ["i"], 3, batch_rows=100),
        *split_rows(con, "SELECT -k FROM range(10) AS r(k)", ["1"], 3, side=1),
    ]
    assert max(decode_piece(piece)[1].nbytes for _, piece in pieces) <= 2000
    load_pieces(con, ["a", "b"], (piece for _, piece in pieces))
    assert con.execute("SELECT count(*), sum(i), min(t) = repeat('x', 100) FROM a").fetchone() == (500, 124750, True)
    assert con.execute("SELECT count(*), sum(k) FROM b").fetchone() == (10, -45)


def split_range(bucket_count: int, start: int) -> Iterator[tuple[int, bytes]]:
    with connect_duckdb() as con:
        rows = f"SELECT i % 100 AS k, i::DECIMAL(20,2) AS v FROM range({start}, {start + 1000}) AS r(i)"
        yield from split_rows(con, rows, ["k"], bucket_count)


def sum_by_key(bucket: int, pieces: Iterator[bytes]) -> tuple[int, list[tuple[int, int, Decimal]]]:
    with connect_duckdb() as con:
        con.execute("CREATE TEMP TABLE rows (k BIGINT, v DECIMAL(20,2))")
        load_pieces(con, ["rows"], pieces)
        return bucket, con.execute("SELECT k, count(*), sum(v) FROM rows GROUP BY k").fetchall()


@pytest.mark.parametrize("runner", [ProcessRunner(), PicklingRunner()], ids=["process", "units"])
def test_rows_with_equal_keys_meet_in_one_bucket(runner: ProcessRunner) -> None:
    results = runner.run_shuffled(partial(split_range, 7), [0, 1000, 2000], sum_by_key, 7)
    assert [bucket for bucket, _ in results] == list(range(7))
    assert sorted(row for _, rows in results for row in rows) == [
        (k, 30, Decimal(sum(range(k, 3000, 100)))) for k in range(100)
    ]
