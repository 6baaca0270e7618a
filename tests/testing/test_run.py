"""A task on literal rows: what a test gives, what it gets back, and what it is told when it errs."""

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import runnel as rn
from runnel.declare.registry import collect_declarations
from runnel.errors import Mistake
from runnel.testing.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
ORDERS = (
    "id long not null, day date, amount decimal(12,2), at timestamp, tags array<string>, seen map<string, date>, "
    + ("place struct<city: string, `zip code`: int>, ok boolean, raw binary, local timestamp_ntz")
)


@pytest.fixture(autouse=True)
def declarations() -> Iterator[None]:
    """Let what a test declares be forgotten afterwards."""
    with collect_declarations("/nowhere") as registry:
        registry.root = None  # as in a notebook: a mistake is raised, a second declaration replaces the first
        rn.source("ods.orders", rn.files("*.csv", schema=ORDERS))
        yield


def same(columns: str = "*") -> Callable[..., Any]:
    """Return a task that hands on some columns of its input."""

    @rn.task("dwd.orders", checks=["not_null(id)", "amount >= 0", "unique(id)", "row_count(min=1)"])
    def orders_as_they_are(orders: DataFrame) -> DataFrame:
        return orders.selectExpr(columns)

    return orders_as_they_are


VALUES = {
    # what the test writes, by column: what comes back in .rows, and in .plain
    "long": ("id", 7, 7, 7),
    "long as text": ("id", "007", 7, 7),
    "date": ("day", "2026-01-02", dt.date(2026, 1, 2), "2026-01-02"),
    "date as date": ("day", dt.date(2026, 1, 2), dt.date(2026, 1, 2), "2026-01-02"),
    "decimal": ("amount", "5.00", Decimal("5.00"), "5.00"),
    "decimal as number": ("amount", 5, Decimal("5.00"), "5.00"),
    "timestamp": ("at", "2026-07-02T08:00", dt.datetime(2026, 7, 2, 8, tzinfo=dt.UTC), "2026-07-02T08:00:00+00:00"),
    "with a zone": (
        "at",
        "2026-07-02T08:00+02:00",
        dt.datetime(2026, 7, 2, 6, tzinfo=dt.UTC),
        "2026-07-02T06:00:00+00:00",
    ),
    "without a zone": ("local", "2026-07-02T08:00", dt.datetime(2026, 7, 2, 8), "2026-07-02T08:00:00"),
    "array": ("tags", ["a", None], ["a", None], ["a", None]),
    "map": ("seen", {"x": "2026-01-02"}, {"x": dt.date(2026, 1, 2)}, {"x": "2026-01-02"}),
    "struct": ("place", {"zip code": "12"}, {"city": None, "zip code": 12}, {"city": None, "zip code": 12}),
    "boolean": ("ok", "true", True, True),
    "binary": ("raw", b"hi", b"hi", "aGk="),
    "null": ("amount", None, None, None),
}


@pytest.mark.parametrize(("column", "given", "value", "plain"), VALUES.values(), ids=VALUES)
def test_values_have_the_declared_type(column: str, given: Any, value: Any, plain: Any) -> None:
    made = rn.testing.run(same(f"`{column}`"), orders=[{column: given}])
    assert (made.rows, made.plain) == ([{column: value}], [{column: plain}])


WRONG_VALUES = {
    "no date": ("day", "2026-02-30"),
    "no number": ("id", "seven"),
    "a broken number": ("id", 1.5),
    "too large": ("id", 2**63),
    "too many digits": ("amount", "1.005"),
    "no array": ("tags", "a"),
    "an unknown field": ("place", {"town": "Lima"}),
    "no boolean": ("ok", 1),
}


@pytest.mark.parametrize(("column", "given"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_a_value_that_is_not_of_its_type(column: str, given: Any) -> None:
    with pytest.raises(Mistake, match=rf"TEST_VALUE: .* the type of `orders.{column}`"):
        rn.testing.run(same(), orders=[{column: given}])


def test_no_rows_have_columns_all_the_same() -> None:
    made = rn.testing.run(same("id"), orders=[])
    assert (made.rows, made.columns) == ([], {"id": "bigint"})


def test_rows_of_a_table_that_nothing_declares_are_typed_by_their_values() -> None:
    @rn.task("dws.day")
    def day(visits: DataFrame) -> DataFrame:
        return visits.groupBy("day").agg(F.sum("n").alias("n"))

    visits = [{"day": None, "n": None}, {"day": dt.date(2026, 1, 2), "n": 1}, {"n": 2, "day": dt.date(2026, 1, 2)}]
    made = rn.testing.run(day, visits=visits)
    assert made.columns == {"day": "date", "n": "bigint"}
    assert {"day": dt.date(2026, 1, 2), "n": 3} in made.rows


def test_parameters_have_their_defaults_and_types() -> None:
    @rn.task("dws.big")
    def big(orders: DataFrame, *, least: Decimal = Decimal(2), label: str = "x") -> DataFrame:
        return orders.where(F.col("amount") >= least).select("id", F.lit(label).alias("label"))

    orders = [{"id": 1, "amount": 1}, {"id": 2, "amount": 2}]
    assert rn.testing.run(big, orders=orders).rows == [{"id": 2, "label": "x"}]
    assert [row["id"] for row in rn.testing.run(big, orders=orders, least="0.5", label="y").rows] == [1, 2]
    with pytest.raises(Mistake, match="must be a decimal number"):
        rn.testing.run(big, orders=orders, least="much")


def test_a_task_that_takes_the_session_and_one_test_feeding_another(spark: "SparkSession") -> None:
    @rn.task("dws.known")
    def known(orders: DataFrame, spark: Any) -> DataFrame:
        return orders.select("id").union(spark.range(7, 8))

    first = rn.testing.run(
        same(
            "id",
        ),
        orders=[{"id": 1}],
    )
    for given in (first, first.frame, [{"id": 1}]):
        assert [row["id"] for row in rn.testing.run(known, orders=given).rows] == [1, 7]
    assert session() is spark, "one warm session for all tests"


def test_two_inputs_may_be_the_same_table() -> None:
    @rn.task("dws.pairs", inputs={"one": "ods.orders", "other": "ods.orders"})
    def pairs(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.select("id").exceptAll(other.select("id"))

    assert rn.testing.run(pairs, one=[{"id": "1"}, {"id": "2"}], other=[{"id": "2"}]).rows == [{"id": 1}]


def test_rows_that_fail_checks() -> None:
    fine = rn.testing.run(same("id"), orders=[{"id": 1}, {"id": 2}])
    assert "unique(id)" not in rn.testing.run(same(), orders=[{"id": 1}, {"id": 2}]).failed
    made = rn.testing.run(same(), orders=[{"id": 1, "amount": -1}, {"id": 1, "amount": 1}, {"amount": 3}])
    shown = {text: [row["amount"] for row in rows] for text, rows in made.failed.items()}
    assert shown == {"not_null(id)": [3], "amount >= 0": [-1], "unique(id)": [-1, 1]}
    assert rn.testing.run(same(), orders=[]).failed == {"row_count(min=1)": []}
    with pytest.raises(Mistake, match="CHECK_INVALID: the check `amount >= 0` names `amount`"):
        _ = fine.failed


def test_references_are_checked_where_the_test_has_the_other_table() -> None:
    rn.source("ods.sellers", rn.manual(schema="seller_id long"))

    @rn.task("dws.sold", inputs={"orders": "ods.orders"}, checks=[rn.references("id", "ods.sellers.seller_id")])
    def sold(orders: DataFrame, sellers: DataFrame) -> DataFrame:
        return orders.select("id")

    made = rn.testing.run(sold, orders=[{"id": 1}, {"id": 2}, {"id": None}], sellers=[{"seller_id": 2}])
    assert list(made.failed.values()) == [[{"id": 1}]]


@rn.task("dws.seller_day")
def seller_day(orders: DataFrame, sellers: DataFrame, *, min_amount: float = 0.0) -> DataFrame:
    return orders


MISTAKES: dict[str, tuple[object, dict[str, Any], str]] = {
    "an input is missing": (
        seller_day,
        {"orders": []},
        "reads `orders` and `sellers`, but the test gives no `sellers`",
    ),
    "an input misspelt": (seller_day, {"ordres": [], "sellers": []}, "`ordres`; close: `orders`"),
    "a parameter misspelt": (seller_day, {"orders": [], "sellers": [], "min_amout": 1}, "close: `min_amount`"),
    "a column misspelt": (seller_day, {"orders": [{"amuont": 1}], "sellers": [{"x": 1}]}, "close: `amount`"),
    "no rows, no columns": (
        seller_day,
        {"orders": [], "sellers": []},
        "fix: declare the columns with schema= where `sellers` is made, or pass a frame: sellers=rn.testing.session()",
    ),
    "a row that is none": (seller_day, {"orders": [(1, 2)], "sellers": []}, "is not a row of `orders`"),
    "rows that are none": (seller_day, {"orders": {"id": 1}, "sellers": []}, "of type dict"),
    "values of two types": (seller_day, {"orders": [], "sellers": [{"x": 1}, {"x": "a"}]}, "don't agree on a type"),
    "no task": (len, {}, "`len` is not a task"),
    "no such file": ("flows/dws/nothing.sql", {}, "there is no SQL task"),
}


@pytest.mark.parametrize(("task", "given", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_of_a_test(task: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Mistake) as told:
        rn.testing.run(task, **given)
    assert said in str(told.value) and told.value.fix


def test_a_task_that_fails_is_told_with_its_line() -> None:
    @rn.task("dws.bad")
    def bad(orders: DataFrame) -> DataFrame:
        return orders.select("amuont")

    with pytest.raises(rn.RunnelError) as told:
        rn.testing.run(bad, orders=[])
    assert "amount" in str(told.value) and "test_run.py:" in str(told.value.at)


SQL = """-- Per day.
/* runnel
params = { least = 0 }
checks = ["revenue > 5"]
*/
select o.day, sum(o.amount) as revenue from ods.orders o
where o.amount >= :least and o.id not in (select id from dwd.orders) group by o.day
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a task in SQL, and a source in a file that no test imports."""
    (tmp_path / "flows/dws").mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/dws/day.sql").write_text(SQL)
    declared = 'rn.source("ods.orders", rn.files("*.csv", schema="id long, day date, amount long"))\n'
    declared += 'rn.source("dwd.orders", rn.manual(schema="id long"))\nrn.source("ods.sellers", rn.manual())\n'
    (tmp_path / "flows/sources.py").write_text(f"import runnel as rn\n{declared}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_task_in_sql_by_its_path(project: Path) -> None:
    with collect_declarations(str(project)) as registry:
        registry.root = None  # nothing is imported here: the project's files say what the columns are
        given = {"ods.orders": [{"id": "1", "day": "2026-01-02", "amount": "3"}], "dwd.orders": []}
        made = rn.testing.run("flows/dws/day.sql", **given)
        assert made.plain == [{"day": "2026-01-02", "revenue": 3}]
        assert list(made.failed) == ["revenue > 5"]
        assert rn.testing.run(project / "flows/dws/day.sql", **given, least=4).rows == []
        with pytest.raises(Mistake, match=r"close: `dwd\.orders`"):
            rn.testing.run("flows/dws/day.sql", **{"ods.orders": [], "dw.orders": []})
        with pytest.raises(Mistake, match=r"close: `day\.sql`"):
            rn.testing.run("flows/dws/days.sql")
