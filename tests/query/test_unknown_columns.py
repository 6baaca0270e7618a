"""A column that exists nowhere is reported at once; names that Spark generates are left to Spark."""

import pytest
from sqlglot import parse_one

from runnel.query.data_types import INT
from runnel.query.unknown_columns import find_unknown_column

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
