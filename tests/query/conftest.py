"""The small tables on which both engines are compared."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DEC, DEC2 = pa.decimal128(12, 2), pa.decimal128(9, 4)
NAN = float("nan")


def _decimals(*values: str | None) -> list[Decimal | None]:
    return [None if value is None else Decimal(value) for value in values]


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def facts() -> pa.Table:
    """One row per oddity: NULLs, NaN, both zeros, negatives, letters beyond ASCII."""
    days = [date(2024, 2, 29), date(2023, 12, 31), None, date(2021, 1, 1), date(1969, 7, 20), date(2024, 1, 31)]
    times = [_at(2024, 2, 29, 12, 30, 45, 120000), _at(2023, 12, 31, 23, 59, 59), None, _at(2021, 1, 1)]
    times += [_at(1969, 7, 20, 20, 17, 40, 5), _at(2024, 1, 31, 10)]
    columns = {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int32()),
        "i": pa.array([1, 2, None, -3, 5, 2], pa.int32()),
        "j": pa.array([1, None, 7, 4, -5, 2], pa.int32()),
        "l": pa.array([10, 3_000_000_000, None, -7, 1 << 40, 1], pa.int64()),
        "ti": pa.array([1, 2, None, -4, 5, 6], pa.int8()),
        "n": pa.array([1, 2, 2, 1, 3, 1], pa.int32()),
        "d": pa.array([0.0, -0.0, None, NAN, 2.5, NAN], pa.float64()),
        "e": pa.array([0.1, -2.7, 3.0, None, 2.5, 1e9], pa.float64()),
        "fl": pa.array([0.1, -2.5, None, 3.0, 2.5, 1.0], pa.float32()),
        "dec": pa.array(_decimals("10.05", "-2.50", None, "0.00", "123456.78", "2.50"), DEC),
        "dec2": pa.array(_decimals("0.1000", "3.3333", "1.0000", None, "-0.0050", "2.5000"), DEC2),
        "s": pa.array(["abc", "Abc", None, "", "b c", "abc"]),
        "u": pa.array(["añb", "日本語", None, "😀x", "z", "é"]),
        "pad": pa.array(["  a b ", "aa", None, "   ", " \tx ", "a"]),
        "csv": pa.array(["1,b", "22,,c%", None, "", "x|y", "7, z"]),
        "num": pa.array([" 12 ", "-7", None, "+5", "0", "00012"]),
        "iso": pa.array(["2024-02-29", " 1999-12-31 ", None, "0001-01-01", "9999-12-31", "1970-01-01"]),
        "b": pa.array([True, False, None, True, False, True]),
        "dt": pa.array(days, pa.date32()),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "arr": pa.array([[1, 2, 3], [2, None], None, [5], [3, 1, 2], [1]], pa.list_(pa.int32())),
        "sa": pa.array([["x", "y"], [None, "z"], None, [], ["日"], ["a"]], pa.list_(pa.string())),
        "st": pa.array(
            [
                {"a": 1, "b": "x"},
                {"a": None, "b": "y"},
                None,
                {"a": 3, "b": None},
                {"a": 4, "b": "é"},
                {"a": 5, "b": ""},
            ],
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
        ),
        "m": pa.array(
            [[("k", 1)], [("q", 2), ("k", None)], None, [], [("k", 5), ("z", 6)], [("é", 7)]],
            pa.map_(pa.string(), pa.int32()),
        ),
    }
    return pa.table(columns)


def people() -> pa.Table:
    return pa.table(
        {
            "person_id": pa.array([1, 2, 3, 4, 5], pa.int32()),
            "name": ["Ada", "Bo", "Cy", "Di", "Ed"],
            "team_id": pa.array([1, 1, 2, None, 9], pa.int32()),
            "boss": pa.array([None, 1, 1, 2, 2], pa.int32()),
        }
    )


def teams() -> pa.Table:
    return pa.table(
        {"team_id": pa.array([1, 2, 3], pa.int32()), "name": ["red", "blue", "grey"], "city": ["Oslo", "Rome", None]}
    )


SCHEMAS = {
    "lab.facts": {
        "id": "int", "i": "int", "j": "int", "l": "bigint", "ti": "tinyint", "n": "int", "d": "double", "e": "double",
        "fl": "float", "dec": "decimal(12,2)", "dec2": "decimal(9,4)", "s": "string", "u": "string", "pad": "string",
        "csv": "string", "num": "string", "iso": "string", "b": "boolean", "dt": "date", "ts": "timestamp",
        "arr": "array<int>", "sa": "array<string>", "st": "struct<a:int,b:string>", "m": "map<string,int>",
    },
    "lab.people": {"person_id": "int", "name": "string", "team_id": "int", "boss": "int"},
    "lab.teams": {"team_id": "int", "name": "string", "city": "string"},
}  # fmt: skip


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of `lab` as Parquet files."""
    folder = tmp_path_factory.mktemp("lab")
    files = {}
    for make in (facts, people, teams):
        files[make.__name__] = folder / f"{make.__name__}.parquet"
        pq.write_table(make(), files[make.__name__])
    return files
