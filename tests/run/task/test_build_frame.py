"""The frame of a task: what it is built from, and what is refused before anything runs."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.flow import Task, TaskOptions
from runnel.declare.model.source_location import SourceLocation
from runnel.errors import RunnelError
from runnel.names import TableName
from runnel.run.task.build_frame import build_frame
from tests.run.function_tasks import ITEMS, ORDERS, ROOT, marked, task_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "SparkSession":
    return spark.newSession()


@pytest.fixture(scope="module")
def frames(session: "SparkSession") -> "dict[TableName, DataFrame]":
    orders = session.sql("select * from values (1L, 'd1', 5L), (2L, 'd2', 7L) as t(id, day, amount)")
    return {ORDERS: orders, ITEMS: session.sql("select 1L as id, 'pen' as label")}


@pytest.fixture(autouse=True)
def _quiet(session: "SparkSession", capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever a task does, no view stays behind and nothing is written to standard error."""
    yield
    # Asked of the session itself: what PySpark lists follows the catalog of the session that is active in this thread.
    assert session._jsparkSession.sessionState().catalog().listLocalTempViews("*").isEmpty()
    assert capfd.readouterr().err == ""


def test_frames_params_and_session_by_name(session: "SparkSession", frames: "dict[TableName, DataFrame]") -> None:
    def made(orders: Any, items: Any, spark: Any, *, least: int, factor: int = 1) -> Any:
        assert spark is session and items.columns == ["id", "label"] and factor == 2
        return orders.where(orders.amount >= least).select("id")

    task = task_of(made, params=(("least", 6), ("factor", 2)))
    assert [tuple(row) for row in build_frame(task, frames, session, ROOT).collect()] == [(2,)]


def test_sql_with_parameters(session: "SparkSession", frames: "dict[TableName, DataFrame]") -> None:
    sql = "select o.id, i.label from ods.orders o join ods.items i on i.id = o.id where o.amount >= :least"
    params = (("least", 5), ("unused", 1))
    inputs = (("orders", ORDERS), ("items", ITEMS))
    task = Task(TableName("dws", "made"), "made", SourceLocation("made.sql", 1), inputs, params, sql=sql)
    assert [tuple(row) for row in build_frame(task, frames, session, ROOT).collect()] == [(1, "pen")]


def test_sql_with_an_unknown_column(
    session: "SparkSession", frames: "dict[TableName, DataFrame]", tmp_path: Path
) -> None:
    sql = "select id,\n       amuont\nfrom ods.orders"
    (tmp_path / "made.sql").write_text(f"-- options\n{sql}")
    task = Task(TableName("dws", "made"), "made", SourceLocation("made.sql", 1), (("orders", ORDERS),), sql=sql)
    with pytest.raises(RunnelError, match=r"`ods\.orders` has no such column; close: `amount`") as caught:
        build_frame(task, {ORDERS: frames[ORDERS]}, session, tmp_path)
    assert (caught.value.code, caught.value.at) == ("RUN_COLUMN_UNKNOWN", "made.sql:3")


DECLARED = TaskOptions(schema=parse_columns("amount long, ID long, day string"))


def test_declared_columns_come_in_their_order(session: "SparkSession", frames: "dict[TableName, DataFrame]") -> None:
    found = build_frame(task_of(lambda orders: orders, DECLARED), frames, session, ROOT)
    assert found.columns == ["amount", "ID", "day"] and found.first()[1] == 1  # type: ignore[index]


def nothing(orders: Any) -> None:
    orders.where("id = 1")


def pandas_frame(orders: Any) -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    return pd.DataFrame({"a": [1]})


def groups(orders: Any) -> Any:
    return orders.groupBy("day")


def a_list(orders: Any) -> Any:
    return [1]


def yields(orders: Any) -> Any:
    yield orders


def a_column(orders: Any) -> Any:
    return orders.id


def duplicates(orders: Any) -> Any:
    return orders.selectExpr("id", "day", "amount as ID")


def joined(orders: Any, items: Any) -> Any:
    return orders.join(items, orders.id == items.id)


def void(orders: Any) -> Any:
    return orders.selectExpr("id", "null as note")


def nested_void(orders: Any) -> Any:
    return orders.selectExpr("array() as notes")


def interval(orders: Any) -> Any:
    return orders.selectExpr("interval 1 day as pause")


def no_columns(orders: Any) -> Any:
    return orders.select()


def missing(orders: Any) -> Any:
    return orders.selectExpr("id", "amount as amuont", "day")


def extra(orders: Any) -> Any:
    return orders.selectExpr("*", "1 as more")


def retyped(orders: Any) -> Any:
    return orders.selectExpr("id", "day", "cast(amount as double) as amount")


def elsewhere(orders: Any) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate().range(1)


def raises(orders: Any) -> Any:
    return dict[str, int]()["nope"]  # <- here


def raises_in_a_library(orders: Any) -> Any:
    import json

    return json.loads(  # <- here
        "{"
    )


def many_lines(orders: Any) -> Any:
    raise ValueError("first line " + "x" * 500 + "\nsecond line")  # <- here


def selects(orders: Any) -> Any:
    return orders.select("id", "amuont")  # <- here


def filters(orders: Any, items: Any) -> Any:
    from pyspark.sql import functions as F

    wrong = F.col("lable") == "pen"  # <- here
    return items.where(wrong)


def attribute(orders: Any) -> Any:
    return orders.where(orders.amuont > 1)  # <- here


def item(orders: Any) -> Any:
    return orders.where(orders["amuont"] > 1)  # <- here


def after_a_step(orders: Any, items: Any) -> Any:
    both = orders.join(items, "id").withColumnRenamed("amount", "total")
    return both.selectExpr("totla + 1 as n")  # <- here


def mixed_types(orders: Any) -> Any:
    from pyspark.sql import functions as F

    return orders.select(F.col("id") + F.array(F.lit(1)))  # <- here


def no_table(spark: Any) -> Any:
    return spark.table("spark_catalog.default.nothing")  # <- here


def bad_sql(spark: Any) -> Any:
    return spark.sql("selec 1")  # <- here


def exits(orders: Any) -> Any:
    sys.exit(3)  # <- here


def stops(orders: Any, spark: Any) -> Any:
    spark.stop()  # <- here
    return orders


def stops_another(orders: Any) -> Any:
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate().stop()  # <- here
    return orders


def recurses(orders: Any) -> Any:
    return recurses(orders)  # <- here


Function = Callable[..., Any]
REFUSED: dict[str, tuple[Function, TaskOptions, str, str]] = {
    "None": (nothing, TaskOptions(), "RUN_NOT_A_FRAME", "returns nothing\n.*did you forget `return`"),
    "pandas": (
        pandas_frame,
        TaskOptions(),
        "RUN_NOT_A_FRAME",
        r"a pandas\.DataFrame, not a Spark frame\n.*createDataFrame",
    ),
    "groups": (groups, TaskOptions(), "RUN_NOT_A_FRAME", r"without an aggregate\n.*\.agg"),
    "a list": (a_list, TaskOptions(), "RUN_NOT_A_FRAME", "a value of type list"),
    "a generator": (yields, TaskOptions(), "RUN_NOT_A_FRAME", "a generator"),
    "a column": (a_column, TaskOptions(), "RUN_NOT_A_FRAME", "a value of type Column"),
    "duplicates": (duplicates, TaskOptions(), "RUN_DUPLICATE_COLUMN", "the column `id` and `ID` more than once"),
    "joined": (joined, TaskOptions(), "RUN_DUPLICATE_COLUMN", "the column `id` more than once"),
    "void": (void, TaskOptions(), "RUN_VOID_COLUMN", "`note` with nothing but nulls.*\n.*cast it"),
    "nested void": (nested_void, TaskOptions(), "RUN_VOID_COLUMN", r"`notes\.element`"),
    "interval": (interval, TaskOptions(), "RUN_COLUMN_TYPE", "`pause` of type interval day"),
    "no columns": (no_columns, TaskOptions(), "RUN_NO_COLUMNS", "without columns"),
    "missing": (missing, DECLARED, "RUN_SCHEMA", r"lacks `amount` \(close: `amuont`\).*returns `amuont`"),
    "extra": (extra, DECLARED, "RUN_SCHEMA", "returns `more`, which its schema does not declare"),
    "retyped": (retyped, DECLARED, "RUN_SCHEMA", "declared bigint, but the task returns double\n.*cast it"),
    "another session": (elsewhere, TaskOptions(), "RUN_OTHER_SESSION", "another Spark session"),
    "an exception": (raises, TaskOptions(), "RUN_TASK_FAILED", "failed: KeyError: 'nope'"),
    "in a library": (raises_in_a_library, TaskOptions(), "RUN_TASK_FAILED", "failed: JSONDecodeError: Expecting"),
    "many lines": (many_lines, TaskOptions(), "RUN_TASK_FAILED", "failed: ValueError: first line x+…"),
    "select": (
        selects,
        TaskOptions(),
        "RUN_COLUMN_UNKNOWN",
        "`amuont`, but its input `ods.orders` has no .*: `amount`",
    ),
    "filter": (filters, TaskOptions(), "RUN_COLUMN_UNKNOWN", "`lable`, but its input `ods.items` has no .*: `label`"),
    "attribute": (attribute, TaskOptions(), "RUN_COLUMN_UNKNOWN", "`amuont`.*close: `amount`"),
    "item": (item, TaskOptions(), "RUN_COLUMN_UNKNOWN", "`amuont`.*close: `amount`"),
    "after a step": (after_a_step, TaskOptions(), "RUN_COLUMN_UNKNOWN", "`totla`, .* at that point; close: `total`"),
    "mixed types": (mixed_types, TaskOptions(), "RUN_TASK_FAILED", r"data type mismatch.*\[DATATYPE_MISMATCH"),
    "no table": (no_table, TaskOptions(), "RUN_UNDECLARED_INPUT", r"reads `\S*nothing`"),
    "bad SQL": (bad_sql, TaskOptions(), "RUN_TASK_FAILED", "Syntax error at or near 'selec'"),
    "sys.exit": (exits, TaskOptions(), "RUN_TASK_EXIT", r"calls sys\.exit\(\)"),
    "spark.stop": (stops, TaskOptions(), "RUN_SPARK_STOPPED", r"calls spark\.stop\(\)"),
    "another stop": (stops_another, TaskOptions(), "RUN_SPARK_STOPPED", r"calls spark\.stop\(\)"),
    "recursion": (recurses, TaskOptions(), "RUN_TASK_FAILED", "RecursionError"),
}


@pytest.mark.parametrize(("function", "options", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(
    session: "SparkSession",
    frames: "dict[TableName, DataFrame]",
    function: Function,
    options: TaskOptions,
    code: str,
    told: str,
) -> None:
    task = task_of(function, options)
    with pytest.raises(RunnelError) as caught:
        build_frame(task, {table: frames[table] for table in task.input_tables}, session, ROOT)
    lines = str(caught.value).splitlines()
    without_place = "\n".join(line for line in lines if not line.startswith("  at "))
    assert "task `dws.made`" in caught.value.what
    assert (caught.value.code, caught.value.at) == (code, marked(function))
    assert re.search(told, without_place), without_place
    assert len(caught.value.what) <= 300 and "\n" not in caught.value.what and caught.value.fix


def test_spark_survives_what_was_refused(session: "SparkSession") -> None:
    assert session.range(3).count() == 3
