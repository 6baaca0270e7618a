"""A task's table gets the shape that its frame needs."""

from typing import Any

import pytest
from pyspark.sql.types import _parse_datatype_string

from runnel.errors import Mistake
from runnel.lake.iceberg import table_metadata
from runnel.lake.store import Store
from runnel.model.table_version import TableVersion
from runnel.run.write.target_layout import prepare_table
from tests.run.task_context import task_with


def schema_of(text: str) -> Any:
    return _parse_datatype_string(text)


def prepared(store: Store, text: str, base: str | None = None, **options: Any) -> str:
    head = TableVersion(base, base) if base else None
    return prepare_table(store, task_with(**options), schema_of(text), head)


def shape(store: Store, location: str) -> list[str]:
    return [
        f"{field.field_id} {field.name} {field.field_type}"
        for field in table_metadata.load_metadata(store, location).schema().fields
    ]


pytestmark = pytest.mark.usefixtures("spark")  # PySpark reads schemas with its JVM

SCHEMAS = {
    "numbers": ("a byte, b short, c int, d long", ["1 a int", "2 b int", "3 c int", "4 d long"]),
    "times": ("a date, b timestamp, c timestamp_ntz", ["1 a date", "2 b timestamptz", "3 c timestamp"]),
    "other": ("a boolean, b binary, c decimal(12,2)", ["1 a boolean", "2 b binary", "3 c decimal(12, 2)"]),
    "nested": (
        "a array<int>, b map<string, double>, c struct<`x y`: int>",
        ["1 a list<int>", "2 b map<string, double>", "3 c struct<7: x y: optional int>"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_frame_of_these_columns_makes(store: Store, text: str, expected: list[str]) -> None:
    assert shape(store, prepared(store, text)) == expected


def test_what_a_task_says_about_its_table(store: Store) -> None:
    options: dict[str, Any] = {"partition": ("day",), "sort": ("id desc",), "key": ("ID",), "properties": (("x", "y"),)}
    made = table_metadata.load_metadata(
        store, prepared(store, "id long, day date", schema="id long comment 'which', day date", **options)
    )
    assert [field.name for field in made.spec().fields] == ["day"]
    assert "DESC" in str(made.sort_order_by_id(made.default_sort_order_id))
    assert made.schema().find_field("id").doc == "which"
    wanted = {"runnel.made_by": "task", "runnel.key": "id", "x": "y", "gc.enabled": "false"}
    assert wanted.items() <= made.properties.items()
    assert made.properties["write.distribution-mode"] == "hash"


CHANGES: dict[str, tuple[str, dict[str, Any], list[str] | None]] = {
    "nothing": ("id long, n int", {}, None),
    "another order of columns": ("n int, id long", {}, ["2 n int", "1 id long"]),
    "a wider column": ("id long, n long", {}, ["1 id long", "2 n long"]),
    "another type": ("id long, n string", {}, ["1 id long", "3 n string"]),
    "one less": ("id long", {}, ["1 id long"]),
    "partitions": ("id long, n int", {"partition": ("n",)}, ["1 id long", "2 n int"]),
}


@pytest.mark.parametrize(("text", "options", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_table_that_is_there_changes(
    store: Store, text: str, options: dict[str, Any], expected: list[str] | None
) -> None:
    first = prepared(store, "id long, n int")
    second = prepared(store, text, first, **options)
    assert (second == first) == (expected is None)
    assert shape(store, second) == (expected or shape(store, first))


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "partition": ({"partition": ("dya",)}, "RUN_PARTITION", "close: `day`"),
    "sort": ({"sort": ("amout desc",)}, "RUN_SORT", "close: `amount`"),
    "key": ({"key": ("idd",)}, "RUN_KEY", "close: `id`"),
}


@pytest.mark.parametrize(("options", "code", "text"), WRONG.values(), ids=WRONG)
def test_a_column_that_the_frame_lacks(store: Store, options: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(Mistake) as caught:
        prepared(store, "id long, day date, amount long", **options)
    assert caught.value.code == code and text in caught.value.what and caught.value.at == "flows/made.py:7"
