"""Two frames are compared as multisets of rows, floating point to a tolerance; on real Spark."""

from typing import TYPE_CHECKING

import pytest

from runnel.run.verify.compare_frames import compare_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = "id long, v struct<a: double, b: array<float>, c: map<string, double>>"
# schema, left, right, how many rows only left and only right
CASES = {
    "the same in another order": ("a long, b string", [(1, "x"), (2, None)], [(2, None), (1, "x")], (0, 0)),
    "one row twice": ("a long", [(1,), (1,), (2,)], [(1,), (2,), (2,)], (1, 1)),
    "a row is missing": ("a long, b string", [(1, "x")], [], (1, 0)),
    "null and empty": ("b string", [(None,)], [("",)], (1, 1)),
    "last digits": ("a long, x double", [(1, 0.1 + 0.2), (2, 5.0)], [(1, 0.3), (2, 5.0)], (0, 0)),
    "more than last digits": ("a long, x double", [(1, 0.3)], [(1, 0.3001)], (1, 1)),
    "at a boundary of rounding": ("a long, x double", [(1, 0.12345)], [(1, 0.12345 * (1 + 1e-12))], (0, 0)),
    "opposites that add up to nothing": ("a long, x double", [(1, 5.5e-17)], [(1, 0.0)], (0, 0)),
    "not a number": ("x double", [(float("nan"),), (None,)], [(None,), (float("nan"),)], (0, 0)),
    "infinite": ("x double", [(float("inf"),)], [(1e300,)], (1, 1)),
    "minus zero": ("x double", [(-0.0,)], [(0.0,)], (0, 0)),
    "many of one key": ("a long, x double", [(1, 0.3), (1, 7.0)], [(1, 7.0), (1, 0.1 + 0.2)], (0, 0)),
    "maps have no order": ("m map<string, long>", [({"a": 1, "b": 2},)], [({"b": 2, "a": 1},)], (0, 0)),
    "maps differ": ("m map<string, long>", [({"a": 1},)], [({"a": 2},)], (1, 1)),
    "maps in structs": (
        "id long, s struct<m: map<string, array<map<string, long>>>>",
        [(1, ({"a": [{"x": 1}]},)), (2, None)],
        [(1, ({"a": [{"x": 2}]},)), (2, None)],
        (1, 1),
    ),
    "floating point inside": (
        NESTED,
        [(1, (0.1 + 0.2, [1.5, None], {"k": 0.1 + 0.2})), (2, None)],
        [(1, (0.3, [1.5, None], {"k": 0.3})), (2, None)],
        (0, 0),
    ),
    "floating point inside differs": (NESTED, [(1, (0.3, [1.5], {}))], [(1, (0.3, [1.5, 2.0], {}))], (1, 1)),
}


@pytest.mark.parametrize(("schema", "left", "right", "expected"), CASES.values(), ids=CASES)
def test_rows(spark: "SparkSession", schema: str, left: list, right: list, expected: tuple[int, int]) -> None:
    found = compare_frames(spark.createDataFrame(left, schema), spark.createDataFrame(right, schema))
    assert (found.only_left, found.only_right) == expected
    assert bool(found) == (expected != (0, 0))


def test_first_rows_by_key(spark: "SparkSession") -> None:
    left = spark.createDataFrame([(2, "a", 1.0), (1, "b", 2.0), (3, "c", 1.0)], "id long, b string, x double")
    right = spark.createDataFrame([(2.0, "B", 1), (1.0, "a", 2), (9.0, None, 4)], "x double, b string, id long")
    found = compare_frames(left, right, ["ID"])
    assert found.describe_lines("the table", "the copy") == [
        "2 rows only in the table, 2 only in the copy",
        "id 1: b b in the table, B in the copy",
        "id 3, b c, x 1.0: only in the table",
        "id 4, b null, x 9.0: only in the copy",
    ]


def test_rows_that_share_a_key_are_told_apart_by_their_other_columns(spark: "SparkSession") -> None:
    schema = "day string, x double, seller long"
    left = spark.createDataFrame([("d", 1.0, 1), ("d", 2.0, 2), ("d", 3.0, 3)], schema)
    right = spark.createDataFrame([("d", 1.5, 1), ("d", 2.5, 2), ("d", 3.0, 3)], schema)
    assert compare_frames(left, right, ["day"]).describe_lines("the table", "the copy")[1:] == [
        "day d, seller 1: x 1.0 in the table, 1.5 in the copy",
        "day d, seller 2: x 2.0 in the table, 2.5 in the copy",
    ]


def test_columns_differ(spark: "SparkSession") -> None:
    left, right = (
        spark.createDataFrame([(1, 2)], "a int, b long"),
        spark.createDataFrame([(1, "2")], "a short, b string"),
    )
    found = compare_frames(left, right)
    assert found and found.columns == ("b",)
    assert compare_frames(left, left.drop("b")).columns == ("b",)
