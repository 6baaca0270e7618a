"""What is read off the analysed plan of a frame, on real tables in a real slot."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runnel.declare.model.flow import TaskOptions
from runnel.errors import Mistake
from runnel.lake.leases import slots
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.run.analysis.plan_checks import PlanAnalysis, analyse_plan, check_analysis, uses_same_columns
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session
from tests.lake.factories import create, rows
from tests.run.function_tasks import ITEMS, ORDERS, task_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ALL = ("id", "day", "amount")


@dataclass(frozen=True)
class Slot:
    """A slot with the tables `orders` and `items`, which are known, and `other`, which is not."""

    name: str
    spark: "SparkSession"
    folder: Path
    database: str

    @property
    def orders(self) -> "DataFrame":
        return self.spark.table(f"{self.name}.ods.orders")

    @property
    def items(self) -> "DataFrame":
        return self.spark.table(f"{self.name}.ods.items")

    @property
    def known(self) -> dict[str, TableName]:
        return {f"{self.name}.{table}": table for table in (ORDERS, ITEMS)}

    def analyse(self, make: "Callable[[Slot], DataFrame]") -> PlanAnalysis:
        return analyse_plan(make(self), self.known)


@pytest.fixture(scope="module")
def slot(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    folder = tmp_path_factory.mktemp("analysis")
    store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
    for name in ("orders", "items", "other"):
        create(store, f"ods.{name}", rows((1, "d1", 5), (2, "d2", 7)))
    (folder / "x.csv").write_text("a,b\n1,2\n")
    taken = slots.acquire_slot(store.db, "analysis", 0, store.commit("main"), store.state("main"))
    address = store.db.url.render_as_string(hide_password=False)
    session = create_slot_session(spark, CatalogSettings(taken.name, address, store.warehouse))
    yield Slot(taken.name, session, folder, f"{folder}/lake/catalog.db")
    slots.release(store.db, taken)
    store.close()


Make = Callable[[Slot], Any]
READS: dict[str, tuple[Make, tuple[str, ...], tuple[str, ...]]] = {
    "inputs": (lambda s: s.orders.join(s.items, "id"), (), ()),
    "a table by name": (lambda s: s.spark.table("ods.other"), ("ods.other",), ()),
    "in a subquery": (
        lambda s: s.spark.sql("select * from ods.orders where id in (select id from ods.other)"),
        ("ods.other",),
        (),
    ),
    "in a scalar": (
        lambda s: s.spark.sql("select id, (select max(id) from ods.other) as m from ods.orders"),
        ("ods.other",),
        (),
    ),
    "in a CTE": (
        lambda s: s.spark.sql("with x as (select * from ods.other) select a.id from x a, x b"),
        ("ods.other",),
        (),
    ),
    "by a reader": (lambda s: s.spark.read.format("iceberg").load("ods.other"), ("ods.other",), ()),
    "an alias does not hide it": (lambda s: s.spark.table("ods.other").alias("orders"), ("ods.other",), ()),
    "a view does not hide it": (lambda s: _view(s, "select * from ods.other"), ("ods.other",), ()),
    "an old version": (
        lambda s: s.spark.sql(f"select * from ods.orders version as of {_snapshot(s)}"),
        (),
        ("ods.orders at another version",),
    ),
    "metadata": (lambda s: s.spark.table("ods.orders.snapshots"), (), ("{slot}.ods.orders.snapshots",)),
    "csv": (lambda s: s.spark.read.csv(f"{s.folder}/x.csv"), (), ("{folder}/x.csv",)),
    "a file in SQL": (lambda s: s.spark.sql(f"select * from text.`{s.folder}/x.csv`"), (), ("{folder}/x.csv",)),
    "joined with a file": (
        lambda s: s.orders.crossJoin(s.spark.read.text(f"{s.folder}/x.csv")),
        (),
        ("{folder}/x.csv",),
    ),
    "a text file's RDD": (
        lambda s: _frame_of(s, s.spark.sparkContext.textFile(f"{s.folder}/x.csv")),
        (),
        ("{folder}/x.csv",),
    ),
    "jdbc": (
        lambda s: s.spark.read.jdbc(f"jdbc:sqlite:{s.database}", "iceberg_tables"),
        (),
        ("JDBC table iceberg_tables",),
    ),
    "a stream": (lambda s: s.spark.readStream.format("rate").load(), (), ("the stream rate",)),
    "literal rows": (
        lambda s: s.orders.join(s.spark.createDataFrame([(1, "a")], "id long, name string"), "id"),
        (),
        (),
    ),
    "a range": (lambda s: s.orders.join(s.spark.range(5), "id"), (), ()),
    "values": (lambda s: s.spark.sql("select * from values (1), (2) as v(a)"), (), ()),
    "nothing": (lambda s: s.spark.sql("select 1 as a"), (), ()),
}


def _view(slot: Slot, sql: str) -> "DataFrame":
    slot.spark.sql(sql).createOrReplaceTempView("some_view")
    return slot.spark.table("some_view")


def _frame_of(slot: Slot, lines: Any) -> "DataFrame":
    return slot.spark.createDataFrame(lines.map(lambda line: (line,)), "line string")


def _snapshot(slot: Slot) -> int:
    return int(slot.spark.table("ods.orders.snapshots").first()["snapshot_id"])  # type: ignore[index]


@pytest.mark.parametrize(("make", "undeclared", "outside"), READS.values(), ids=READS)
def test_what_is_read(slot: Slot, make: Make, undeclared: tuple[str, ...], outside: tuple[str, ...]) -> None:
    found = slot.analyse(make)
    expected = tuple(one.format(slot=slot.name, folder=slot.folder) for one in outside)
    assert (found.undeclared, found.outside, found.hidden) == (undeclared, expected, False)


HIDING: dict[str, Make] = {
    "an RDD": lambda s: s.orders.rdd.map(lambda row: row).toDF(s.orders.schema),
    "a checkpoint": lambda s: s.orders.where("id = 1").localCheckpoint(),
}


@pytest.mark.parametrize("make", HIDING.values(), ids=HIDING)
def test_what_hides_its_reads(slot: Slot, make: Make) -> None:
    found = slot.analyse(make)
    assert found.hidden and not uses_same_columns({ORDERS: ALL}, found, {ORDERS: {"note"}})
    assert "an RDD" in found.blocks_rowwise and "RDD or a checkpoint" in check_analysis(task_of(_task), found)[0]


def _udf(deterministic: bool) -> Any:
    from pyspark.sql import functions as F

    made = F.udf(lambda number: number, "long")
    return made if deterministic else made.asNondeterministic()


UNSURE: dict[str, tuple[Make, tuple[str, ...]]] = {
    "none": (lambda s: s.orders.selectExpr("id + 1", "upper(day)", "hash(id)"), ()),
    "random": (lambda s: s.orders.selectExpr("rand()", "randn(1)", "uuid()"), ("rand", "randn", "uuid")),
    "time": (
        lambda s: s.orders.selectExpr("now()", "current_date()", "current_timestamp()", "localtimestamp()"),
        ("now", "current_date", "current_timestamp", "localtimestamp"),
    ),
    "in a filter": (lambda s: s.orders.where("day < cast(current_date() as string)"), ("current_date",)),
    "without arguments": (lambda s: s.orders.selectExpr("unix_timestamp()"), ("current_timestamp",)),
    "storage": (
        lambda s: s.orders.selectExpr("monotonically_increasing_id()", "input_file_name()", "spark_partition_id()"),
        ("monotonically_increasing_id", "input_file_name", "spark_partition_id"),
    ),
    "Iceberg's own columns": (lambda s: s.orders.selectExpr("id", "_file", "_pos"), ("_file", "_pos")),
    "in a subquery": (
        lambda s: s.spark.sql("select * from ods.orders where id > (select max(id) * rand() from ods.items)"),
        ("rand",),
    ),
    "a sample": (lambda s: s.orders.sample(0.5), ("sample",)),
    "user and place": (
        lambda s: s.orders.selectExpr("current_user()", "current_catalog()", "current_timezone()"),
        ("current_user", "current_catalog", "current_timezone"),
    ),
    "a UDF": (lambda s: s.orders.select(_udf(True)("id")), ()),
    "a UDF that says so": (lambda s: s.orders.select(_udf(False)("id")), ("<lambda>",)),
}


@pytest.mark.parametrize(("make", "expected"), UNSURE.values(), ids=UNSURE)
def test_functions_that_differ_each_time(slot: Slot, make: Make, expected: tuple[str, ...]) -> None:
    assert set(slot.analyse(make).nondeterministic) == set(expected)


def _same(frames: Any) -> Any:
    return frames


ROWWISE: dict[str, tuple[Make, tuple[str, ...]]] = {
    "select, filter, sort": (lambda s: s.orders.where("id > 1").selectExpr("id + 1 as n").orderBy("n"), ()),
    "explode": (lambda s: s.orders.selectExpr("id", "explode(split(day, '1'))"), ()),
    "lateral view": (
        lambda s: s.spark.sql("select id, c from ods.orders lateral view explode(array(1, 2)) t as c"),
        (),
    ),
    "unpivot": (lambda s: s.orders.unpivot("id", ["amount"], "k", "v"), ()),
    "union": (lambda s: s.orders.union(s.items), ()),
    "view and CTE": (lambda s: s.spark.sql("with x as (select id from ods.orders) select * from x"), ()),
    "repartition": (lambda s: s.orders.repartition(2).hint("rebalance").coalesce(1), ()),
    "a UDF": (lambda s: s.orders.select(_udf(True)("id")), ()),
    "aggregate": (lambda s: s.orders.groupBy("day").count(), ("aggregate",)),
    "pivot": (lambda s: s.orders.groupBy("day").pivot("id", [1]).sum("amount"), ("aggregate",)),
    "join": (lambda s: s.orders.join(s.items, "id", "left_semi"), ("join",)),
    "window": (lambda s: s.orders.selectExpr("row_number() over (partition by day order by id)"), ("window",)),
    "limit": (lambda s: s.orders.limit(1), ("limit",)),
    "offset": (lambda s: s.orders.offset(1), ("offset",)),
    "sample": (lambda s: s.orders.sample(0.5), ("sample",)),
    "distinct": (lambda s: s.orders.distinct(), ("distinct",)),
    "distinct in SQL": (lambda s: s.spark.sql("select distinct id from ods.orders"), ("distinct",)),
    "one per key": (lambda s: s.orders.dropDuplicates(["day"]), ("distinct",)),
    "intersect": (lambda s: s.orders.intersect(s.items), ("intersect",)),
    "except": (lambda s: s.orders.exceptAll(s.items), ("except",)),
    "mapInPandas": (lambda s: s.orders.mapInPandas(_same, s.orders.schema), ("mapInPandas",)),
    "applyInPandas": (lambda s: s.orders.groupBy("day").applyInPandas(_same, s.orders.schema), ("applyInPandas",)),
    "subquery": (
        lambda s: s.spark.sql("select * from ods.orders where id in (select id from ods.items)"),
        ("subquery",),
    ),
    "literal rows": (lambda s: s.orders.select("id").union(s.spark.range(1)), ("rows that come from no input",)),
}


@pytest.mark.parametrize(("make", "expected"), ROWWISE.values(), ids=ROWWISE)
def test_what_stands_against_rowwise(slot: Slot, make: Make, expected: tuple[str, ...]) -> None:
    assert slot.analyse(make).blocks_rowwise == expected


COLUMNS: dict[str, tuple[Make, tuple[str, ...], tuple[str, ...] | None]] = {
    "all": (lambda s: s.orders, ALL, None),
    "star": (lambda s: s.spark.sql("select * from ods.orders"), ALL, None),
    "some": (lambda s: s.orders.select("id"), ("id",), None),
    "in a filter": (lambda s: s.orders.where("amount > 1").select("id"), ("id", "amount"), None),
    "passed by": (lambda s: s.orders.selectExpr("*", "upper(day) as u").select("id"), ("id",), None),
    "sorted": (lambda s: s.orders.orderBy("day").select("id"), ("id", "day"), None),
    "aggregate": (lambda s: s.orders.groupBy("day").count(), ("day",), None),
    "counted": (lambda s: s.orders.groupBy().count(), (), None),
    "an aggregate that is dropped": (
        lambda s: s.orders.groupBy("day").agg({"amount": "sum", "id": "max"}).select("day"),
        ("day",),
        None,
    ),
    "join": (lambda s: s.orders.join(s.items, "id").select("orders.day"), ("id", "day"), ("id",)),
    "self join": (lambda s: s.orders.alias("a").join(s.orders.alias("b"), "id").select("a.day"), ("id", "day"), None),
    "semi join": (lambda s: s.orders.join(s.items, "id", "left_semi").select("day"), ("id", "day"), ("id",)),
    "union": (lambda s: s.orders.union(s.items).select("day"), ("day",), ("day",)),
    "union by position": (
        lambda s: s.orders.select("id", "amount").union(s.items.select("amount", "id")).select("id"),
        ("id",),
        ("amount",),
    ),
    "CTE": (
        lambda s: s.spark.sql(
            "with x as (select * from ods.orders), y as (select * from x) select a.id from y a join y b using (day)"
        ),
        ("id", "day"),
        None,
    ),
    "view": (lambda s: _view(s, "select * from ods.orders").select("day"), ("day",), None),
    "window": (lambda s: s.orders.selectExpr("id", "sum(amount) over (order by day) as n").select("id"), ALL, None),
    "distinct": (lambda s: s.spark.sql("select id from (select distinct * from ods.orders)"), ALL, None),
    "explode": (lambda s: s.orders.selectExpr("explode(split(day, '1')) as d"), ("day",), None),
    "scalar subquery": (
        lambda s: s.spark.sql("select id, (select max(amount) from ods.items) as m from ods.orders"),
        ("id",),
        ("amount",),
    ),
    "correlated": (
        lambda s: s.spark.sql(
            "select id from ods.orders o where exists (select id from ods.items i where i.day = o.day)"
        ),
        ("id", "day"),
        ("id", "day"),
    ),
    "correlated in select": (
        lambda s: s.spark.sql("select (select max(i.id) from ods.items i where i.day = o.day) as m from ods.orders o"),
        ("day",),
        ("id", "day"),
    ),
    "lateral": (lambda s: s.spark.sql("select z from ods.orders o, lateral (select o.id + 1 as z)"), ("id",), None),
    "mapInPandas": (lambda s: s.orders.mapInPandas(_same, "id long"), ALL, None),
    "unpivot": (lambda s: s.orders.unpivot("id", ["amount"], "k", "v").select("v"), ALL, None),
    "read by another name": (lambda s: s.spark.table("ods.orders").select("id"), ("id",), None),
    "dozens of steps": (lambda s: _deep(s.orders.select("id", "day")), ("id",), None),
}


def _deep(frame: "DataFrame") -> "DataFrame":
    for number in range(20):
        frame = frame.withColumn(f"c{number}", frame.id + number)
    return frame.select("c3")


@pytest.mark.parametrize(("make", "orders", "items"), COLUMNS.values(), ids=COLUMNS)
def test_columns_that_are_used(slot: Slot, make: Make, orders: tuple[str, ...], items: tuple[str, ...] | None) -> None:
    frame = make(slot)
    found = analyse_plan(frame, slot.known).columns
    assert (found[ORDERS], found.get(ITEMS)) == (orders, items)
    assert _scanned(frame) <= {name for names in found.values() for name in names}, "Spark itself reads more"


def _scanned(frame: "DataFrame") -> set[str]:
    """Return the columns that Spark's optimizer leaves in the scans."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    outputs = [leaves.apply(place).output() for place in range(leaves.size())]
    return {output.apply(place).name() for output in outputs for place in range(output.size())} & {*ALL}


def _task(orders: Any) -> Any:
    return orders


JUDGED: dict[str, tuple[PlanAnalysis, TaskOptions, str, str]] = {
    "undeclared": (
        PlanAnalysis(undeclared=("ods.other",)),
        TaskOptions(volatile=True),
        "RUN_UNDECLARED_INPUT",
        "reads `ods.other`(?s:.*)add it as a parameter, or to inputs=",
    ),
    "by name": (
        PlanAnalysis(undeclared=("ods.orders",)),
        TaskOptions(),
        "RUN_UNDECLARED_INPUT",
        "through the parameter `orders`",
    ),
    "outside": (
        PlanAnalysis(outside=("/x.csv",)),
        TaskOptions(),
        "RUN_OUTSIDE_READ",
        r"reads `/x\.csv`(?s:.*)volatile=True",
    ),
    "not rowwise": (
        PlanAnalysis(blocks_rowwise=("join", "limit")),
        TaskOptions(rowwise=True),
        "RUN_NOT_ROWWISE",
        "`join` and `limit`",
    ),
}


@pytest.mark.parametrize(("analysis", "options", "code", "told"), JUDGED.values(), ids=JUDGED)
def test_what_is_refused(analysis: PlanAnalysis, options: TaskOptions, code: str, told: str) -> None:
    task = task_of(_task, options)
    with pytest.raises(Mistake, match=told) as caught:
        check_analysis(task, analysis)
    assert (caught.value.code, caught.value.at) == (code, str(task.place))


def test_what_is_only_named() -> None:
    found = PlanAnalysis(outside=("/x.csv",), nondeterministic=("rand", "now"), blocks_rowwise=("join",))
    assert check_analysis(task_of(_task, TaskOptions(volatile=True)), found) == ()
    warnings = check_analysis(task_of(_task), PlanAnalysis(nondeterministic=("rand", "now"), blocks_rowwise=("join",)))
    assert warnings == (
        "uses `rand` and `now`, which may differ each time it is computed; "
        "pass the value in as a keyword parameter (`*, today: date`, `runnel run --set today=...`), or take it from "
        "the keyword parameter `scheduled_at`, the time of the run's schedule; "
        "if it shall change by itself, write volatile=True: then the task is never skipped",
    )
    assert check_analysis(task_of(_task), PlanAnalysis(nondeterministic=("rand",))) == (
        "uses `rand`, which may differ each time it is computed; "
        "pass the value in as a parameter, or write volatile=True: then the task is never skipped",
    )


SAME: dict[str, tuple[PlanAnalysis, bool]] = {
    "not used": (PlanAnalysis(columns={ORDERS: ("id", "day")}), True),
    "used": (PlanAnalysis(columns={ORDERS: ("id", "day", "note")}), False),
    "another one is used now": (PlanAnalysis(columns={ORDERS: ("id",)}), False),
    "not in the plan": (PlanAnalysis(), False),
    "hidden": (PlanAnalysis(columns={ORDERS: ("id", "day")}, hidden=True), False),
}


@pytest.mark.parametrize(("analysis", "expected"), SAME.values(), ids=SAME)
def test_a_new_column_that_is_not_used(analysis: PlanAnalysis, expected: bool) -> None:
    assert uses_same_columns({ORDERS: ("day", "id")}, analysis, {ORDERS: {"note"}}) is expected
