"""A column that exists nowhere is reported at once; names that Spark generates are left to Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlglot import parse_one

from runnel.query.data_types import INT
from runnel.query.unknown_columns import find_unknown_column
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = {"ods.orders": {"id": INT}}


@pytest.mark.parametrize("name", ["color", "position", "keys", "col_a", "amount"])
def test_a_column_that_only_starts_like_a_generated_name_is_reported(name: str) -> None:
    tree = parse_one(f"select {name} from ods.orders", dialect="spark")
    mistake = find_unknown_column(f"the column `{name}` is not known", tree, SCHEMAS)
    assert mistake is not None and mistake.code == "SQL_COLUMN"


@pytest.mark.parametrize(
    "name", ["col", "col1", "COL12", "pos", "key", "value", "grouping__id", "GROUPING__ID", "sum(id)", "1", "(id + 1)"]
)
def test_a_generated_name_is_left_to_spark(name: str) -> None:
    tree = parse_one(f"select `{name}` from ods.orders", dialect="spark")
    assert find_unknown_column(f"the column `{name}` is not known", tree, SCHEMAS) is None


ANSWERS = {
    "a number in backquotes": ("select 1, count(*) from ods.orders group by `1`", [(1, 3)]),
    "the number of a grouping": (
        "select grouping__id, day, sum(id) from ods.orders group by day with rollup order by 1, 2",
        [(0, "2026-01-01", 3), (0, "2026-01-02", 3), (1, None, 6)],
    ),
    "an order by the name of an expression": (
        "select sum(amount) from ods.orders group by day order by `sum(amount)` desc",
        [(9,), (7,)],
    ),
    "a comparison in a cube": (
        "select id > 2 as large, count(*) as n from ods.orders group by cube(id > 2) order by large nulls first",
        [(None, 3), (False, 2), (True, 1)],
    ),
}


def test_generated_names_are_answered_without_naming_an_engine(tmp_path: Path, spark: "SparkSession") -> None:
    project = Project(tmp_path, spark)
    project.write("orders.csv", "id,day,amount\n1,2026-01-01,4\n2,2026-01-01,5\n3,2026-01-02,7\n")
    with project.open() as lake:
        lake.load("ods.orders", str(tmp_path / "orders.csv"), schema="id long, day string, amount long")
        answers = {what: lake.query(sql).rows() for what, (sql, _) in ANSWERS.items()}
    assert answers == {what: rows for what, (_, rows) in ANSWERS.items()}
