"""Which tasks are computed slice by slice, as their plans on real tables in a real slot show it."""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.declare.model.flow import TaskOptions
from runnel.errors import Mistake
from runnel.lake.leases import slots
from runnel.lake.store import Store
from runnel.run.analysis.slice_alignment import SlicedInput, check_slice_alignment
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session
from tests.lake.factories import create
from tests.run.function_tasks import task_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark
SOLD = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("shop", pa.string()), ("amount", pa.int64())])
SEEN = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("shop", pa.string())])
RATES = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("rate", pa.int64())])
DAYS = tuple(dt.date(2026, 1, number) for number in (1, 2, 3))
TIMES = tuple(dt.datetime(one.year, one.month, one.day, 5, tzinfo=dt.UTC) for one in DAYS)
# Sliced are orders, items, events and past, which looks back; not rates. Null is a slice too.
TABLES = {
    "orders": (SOLD, [(1, DAYS[0], "a", 5), (2, DAYS[1], "a", 7), (1, DAYS[1], "b", 9), (3, None, "a", 1)]),
    "items": (SOLD, [(1, DAYS[0], "a", 1), (1, DAYS[1], "a", 2), (2, DAYS[2], "b", 7), (2, None, None, 7)]),
    "events": (SEEN, [(1, TIMES[0], "a"), (1, TIMES[1], "b"), (2, TIMES[1], "a"), (3, None, "a")]),
    "rates": (RATES, [(1, DAYS[0], 2), (2, DAYS[1], 3), (4, DAYS[2], 4), (3, None, 5)]),
    "past": (SOLD, [(1, DAYS[0], "a", 5), (2, DAYS[1], "a", 7)]),
}
KEYS = {"orders": "`day`", "items": "`day`", "events": "to_date(ts)", "past": "`day`"}
LOOKBACK = {"past": 5}


@dataclass(frozen=True)
class Slot:
    """Inputs as a task gets them; in SQL they are views with the same names."""

    name: str
    spark: "SparkSession"
    orders: "DataFrame"
    items: "DataFrame"
    events: "DataFrame"
    rates: "DataFrame"
    past: "DataFrame"

    def sql(self, text: str) -> "DataFrame":
        return self.spark.sql(text)

    def judge(self, frame: "DataFrame", *by: str, **keys: str) -> str | None:
        """Return why it can't be seen that a frame is computed by slices; `keys` are other names of inputs' slices."""
        more = tuple(f"`{name}`" for name in by[1:])
        sliced = {
            f"{self.name}.ods.{name}": SlicedInput(getattr(self, name), (text, *more), LOOKBACK.get(name, 0))
            for name, text in (KEYS | keys).items()
            if len(by) == 1 or name != "past"
        }
        return check_slice_alignment(task_of(_task, TaskOptions(by=by)), frame, sliced)


def _task(orders: Any) -> Any:
    return orders


@pytest.fixture(scope="module")
def slot(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    folder = tmp_path_factory.mktemp("alignment")
    store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
    for name, (schema, rows) in TABLES.items():
        made = [dict(zip(schema.names, row, strict=True)) for row in rows]
        create(store, f"ods.{name}", pa.Table.from_pylist(made, schema))
    taken = slots.acquire_slot(store.db, "alignment", 0, store.commit("main"), store.state("main"))
    address = store.db.url.render_as_string(hide_password=False)
    session = create_slot_session(spark, CatalogSettings(taken.name, address, store.warehouse))
    frames = {name: session.table(f"{taken.name}.ods.{name}") for name in TABLES}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    yield Slot(taken.name, session, **frames)
    slots.release(store.db, taken)
    store.close()


def _over(*names: str) -> Any:
    from pyspark.sql import Window

    return Window.partitionBy(*names).orderBy("amount", "id", "shop")


def _numbered(*names: str) -> "Column":
    from pyspark.sql import functions as F

    return F.row_number().over(_over(*names))


def _same(frames: Any) -> Any:
    return frames


def _equal(left: "DataFrame", right: "DataFrame", *names: str) -> "Column":
    found = left[names[0]] == right[names[0]]
    for name in names[1:]:
        found = found & (left[name] == right[name])
    return found


def _on(slot: Slot, kind: str, *names: str) -> "DataFrame":
    """Return orders joined with items under a condition, with the columns of orders and one of items."""
    orders, items = slot.orders, slot.items
    joined = orders.join(items, _equal(orders, items, *names), kind)
    return joined if kind in ("left_semi", "left_anti") else joined.select(orders["*"], items.amount.alias("n"))


Make = Callable[[Slot], Any]
GOOD: dict[str, Make] = {
    "as it is": lambda s: s.orders,
    "no columns but the key": lambda s: s.orders.select("day"),
    "select, filter, sort": lambda s: s.orders.where("id > 1").selectExpr("day", "id + 1 as n").orderBy("n"),
    "explode": lambda s: s.orders.selectExpr("day", "explode(array(1, 2)) as n"),
    "unpivot": lambda s: s.orders.unpivot(["id", "day"], ["amount"], "k", "v"),
    "shuffled": lambda s: s.orders.repartition(2, "id").hint("rebalance").coalesce(1),
    "group": lambda s: s.orders.groupBy("day").count(),
    "group by more": lambda s: s.orders.groupBy("id", "day").agg({"amount": "sum"}),
    "group twice": lambda s: s.orders.groupBy("id", "day").count().groupBy("day").count(),
    "group in SQL": lambda s: s.sql("select shop, day, sum(amount) n from orders group by all having sum(amount) > 1"),
    "renamed and back": lambda s: s.orders.withColumnRenamed("day", "d").groupBy("d").count().selectExpr("d as DAY"),
    "cast to what it is": lambda s: s.orders.selectExpr("cast(day as date) as day", "id").groupBy("day").count(),
    "pivot": lambda s: s.orders.groupBy("day").pivot("id", [1, 2]).sum("amount"),
    "grouping sets that all have it": lambda s: s.sql(
        "select day, shop, sum(amount) n from orders group by grouping sets ((day, shop), (day))"
    ),
    "beside a rollup": lambda s: s.sql("select day, shop, sum(amount) n from orders group by day, rollup (shop)"),
    "one day": lambda s: s.sql("select day, count(*) n from orders where day = date'2026-01-01' group by day"),
    "one day, as a literal": lambda s: s.sql(
        "select date'2026-01-01' as day, count(*) n from orders where day = date'2026-01-01'"
    ),
    "window": lambda s: s.orders.withColumn("n", _numbered("day")),
    "first of each": lambda s: s.orders.withColumn("n", _numbered("shop", "day")).where("n = 1").drop("n"),
    "window over an expression": lambda s: s.sql(
        "select to_date(ts) as day, id, count(*) over (partition by cast(ts as date)) n from events"
    ),
    "distinct": lambda s: s.orders.select("day", "shop").distinct(),
    "one per key": lambda s: s.orders.select("day", "shop").dropDuplicates(["shop", "day"]),
    "inner join on a condition": lambda s: _on(s, "inner", "day", "id"),
    "inner join, null-safe": lambda s: s.orders.join(
        s.items, s.orders.day.eqNullSafe(s.items.day) & (s.orders.id == s.items.id)
    ).select(s.items.day, s.orders.id),
    "left join on a condition": lambda s: _on(s, "left", "id", "day"),
    "semi join": lambda s: _on(s, "left_semi", "id", "day"),
    "anti join": lambda s: _on(s, "left_anti", "id", "day"),
    "right join": lambda s: s.sql(
        "select i.day, o.amount from orders o right join items i on o.day = i.day and o.id = i.id"
    ),
    "full join with coalesce": lambda s: s.sql(
        "select coalesce(i.day, o.day) as day, o.id, i.amount from orders o full join items i on i.day = o.day"
    ),
    "full join with nvl, then grouped": lambda s: s.sql(
        "select nvl(o.day, i.day) as day, count(*) n from orders o full join items i on i.day = o.day group by 1"
    ),
    "left join with coalesce": lambda s: s.sql(
        "select coalesce(i.day, o.day) as day, o.id from orders o left join items i on i.day = o.day and i.id = o.id"
    ),
    **{
        f"{kind} join using": lambda s, kind=kind: s.orders.select("id", "day").join(  # type: ignore[misc]
            s.items.select("id", "day", "amount"), ["day", "id"], kind
        )
        for kind in ("inner", "left", "right", "full", "left_semi", "left_anti")
    },
    "three full joins": lambda s: (
        s.orders.groupBy("day")
        .count()
        .join(s.items.groupBy("day").agg({"amount": "sum"}), "day", "full")
        .join(s.events.selectExpr("to_date(ts) as day", "id").groupBy("day").agg({"id": "max"}), "day", "full")
    ),
    "three in SQL": lambda s: s.sql(
        "select o.day, count(*) n from orders o, items i, events e "
        "where o.id = i.id and e.id = o.id and i.day = o.day and to_date(e.ts) = i.day group by o.day"
    ),
    "self join": lambda s: s.orders.alias("a").join(s.orders.alias("b"), ["day", "shop"]).groupBy("day").count(),
    "joined with its own aggregate": lambda s: s.orders.join(s.orders.groupBy("day").agg({"amount": "sum"}), "day"),
    "cross join and filter": lambda s: s.orders.crossJoin(s.items.selectExpr("day as d", "amount as n")).where(
        "d = day and n < amount"
    ),
    "natural join": lambda s: s.sql("select day, count(*) n from orders natural join items group by day"),
    "reference, inner": lambda s: s.orders.join(s.rates.drop("day"), "id").groupBy("day").count(),
    "reference, cross": lambda s: s.rates.select("rate").crossJoin(s.orders),
    "reference, left": lambda s: s.orders.join(s.rates.drop("day"), "id", "left"),
    "reference, right": lambda s: s.rates.drop("day").join(s.orders, "id", "right"),
    "reference, semi": lambda s: s.orders.join(s.rates, "id", "left_semi"),
    "reference, anti": lambda s: s.orders.join(s.rates, "id", "left_anti"),
    "reference, full on the key": lambda s: s.orders.join(s.rates, ["day", "id"], "full"),
    "reference, kept on the key": lambda s: s.rates.join(s.orders.drop("id"), "day", "left").groupBy("day").count(),
    "reference whose day it takes": lambda s: s.sql(
        "select r.day, count(*) n from orders o join rates r on r.day = o.day group by r.day"
    ),
    "reference semi on the key": lambda s: s.rates.join(s.orders, "day", "left_semi"),
    "reference anti on the key": lambda s: s.rates.join(s.orders, "day", "left_anti"),
    "reference alone": lambda s: s.rates.groupBy("id").agg({"day": "max"}).withColumnRenamed("max(day)", "day"),
    "aggregate of a reference": lambda s: s.orders.crossJoin(s.rates.agg({"rate": "max"})),
    "limit of a reference": lambda s: s.orders.join(s.rates.select("id").limit(100), "id"),
    "literal rows": lambda s: s.orders.join(s.spark.createDataFrame([(1, "x")], "id long, name string"), "id"),
    "union": lambda s: s.orders.union(s.items).groupBy("day").count(),
    "union by place": lambda s: s.orders.selectExpr("id as a", "day").union(s.items.selectExpr("amount", "day as z")),
    "union with the columns swapped": lambda s: (
        s.orders.selectExpr("day as a", "day as b", "id")
        .union(s.orders.selectExpr("cast(null as date)", "day", "id"))
        .selectExpr("b as day", "id")
    ),
    "union by name": lambda s: s.orders.unionByName(s.items.select("day", "id"), allowMissingColumns=True),
    "union of expressions": lambda s: s.events.union(s.events).groupBy(s.events.ts.cast("date").alias("day")).count(),
    "union with a reference": lambda s: s.orders.select("day", "id").union(s.rates.select("day", "id")),
    "union in SQL": lambda s: s.sql("select day, id from orders union select to_date(ts), id from events"),
    "intersect": lambda s: s.orders.intersect(s.items),
    "except": lambda s: s.sql("select id, day from orders except all select id, day from items"),
    "except a reference": lambda s: s.orders.select("id", "day").exceptAll(s.rates.select("id", "day")),
    "CTE": lambda s: s.sql(
        "with x as (select day d, id from orders), y as (select d, id, count(*) n from x group by all) "
        "select a.d as day, a.n, b.id from y a join y b on a.d = b.d"
    ),
    "CTE in a subquery": lambda s: s.sql(
        "with x as (select day from items where id > 1) select * from orders o where day in (select day from x)"
    ),
    "exists": lambda s: s.sql(
        "select * from orders o where exists (select 1 from items i where i.day = o.day and i.id = o.id)"
    ),
    "not exists": lambda s: s.sql(
        "select * from orders o where not exists (select 1 from items i where i.day = o.day and i.id = 2)"
    ),
    "in": lambda s: s.sql("select * from orders where day in (select day from items where amount > 1)"),
    "in, several columns": lambda s: s.sql("select * from orders where (id, day) in (select id, day from items)"),
    "in, with the key inside": lambda s: s.sql(
        "select * from orders o where id not in (select id from items i where i.day <=> o.day)"
    ),
    "in a reference": lambda s: s.sql("select * from orders where id not in (select id from rates)"),
    "a reference by its slices": lambda s: s.sql("select * from rates where day in (select day from orders)"),
    "scalar": lambda s: s.sql("select day, (select max(amount) from items i where i.day = o.day) as n from orders o"),
    "scalar of a reference": lambda s: s.sql("select * from orders where amount > (select max(rate) from rates)"),
    "scalar for a reference": lambda s: s.sql(
        "select day, (select count(*) from orders o where o.day = r.day) as n from rates r"
    ),
    "lateral": lambda s: s.sql(
        "select o.day, x.n from orders o, lateral (select max(amount) n from items i where i.day = o.day) x"
    ),
    "lateral without a table": lambda s: s.sql("select day, n from orders o, lateral (select o.id + 1 as n)"),
    "SQL pipe": lambda s: s.sql("from orders |> where id > 0 |> aggregate sum(amount) as n group by day"),
    "applyInPandas": lambda s: s.orders.groupBy("day", "id").applyInPandas(_same, s.orders.schema),
    "cogroup": lambda s: (
        s.orders.groupBy("day").cogroup(s.items.groupBy("day")).applyInPandas(lambda left, _: left, s.orders.schema)
    ),
    "cogroup with a reference": lambda s: (
        s.rates.groupBy("day").cogroup(s.orders.groupBy("day")).applyInPandas(lambda _, right: right, s.orders.schema)
    ),
    "mapInPandas of a reference": lambda s: s.orders.join(s.rates.mapInPandas(_same, s.rates.schema).drop("day"), "id"),
    "lookback, as it is": lambda s: s.past,
    "lookback, grouped": lambda s: s.past.groupBy("day").count(),
    "lookback, a range of days": lambda s: s.past.selectExpr(
        "day", "sum(amount) over (partition by id order by day range between interval 5 days preceding and current row)"
    ),
    "lookback, a range of numbers": lambda s: s.past.selectExpr(
        "day", "sum(amount) over (order by unix_date(day) range between 5 preceding and 1 preceding) as n"
    ),
    "lookback, two ranges": lambda s: s.sql(
        "with x as (select day, sum(amount) over (order by day range interval 3 days preceding) n from past) "
        "select day, sum(n) over (order by day range interval 2 days preceding) m from x"
    ),
    "lookback, joined within a range": lambda s: s.sql(
        "select o.day, sum(p.amount) n from orders o join past p on p.day between o.day - 5 and o.day group by o.day"
    ),
    "lookback, in days": lambda s: s.sql(
        "select o.day, p.id from orders o left join past p on p.day >= date_sub(o.day, 5) and p.day <= o.day"
    ),
    "lookback, by an interval": lambda s: s.sql(
        "select o.day, p.id from orders o, past p where p.day > o.day - interval 6 days and o.day >= p.day"
    ),
    "lookback, by a difference": lambda s: s.sql(
        "select o.day, p.id from orders o join past p on datediff(o.day, p.day) between 0 and 5"
    ),
    "lookback on itself": lambda s: s.sql(
        "select a.day, sum(b.amount) n from (select distinct day from past) a join past b "
        "on b.day >= a.day - 5 and b.day <= a.day group by a.day"
    ),
    "expression": lambda s: s.events.selectExpr("to_date(ts) as day", "id").groupBy("day").count(),
    "expression, grouped first": lambda s: s.sql("select date(ts) day, count(*) n from events group by date(ts)"),
    "expression of a renamed column": lambda s: s.events.withColumnRenamed("ts", "t").selectExpr(
        "id", "cast(t as date) as day"
    ),
    "expression of a finer group": lambda s: s.events.groupBy("ts").count().selectExpr("to_date(ts) as day", "count"),
    "expression, joined": lambda s: s.sql("select day, o.id from orders o join events e on o.day = to_date(e.ts)"),
    "expression, full join": lambda s: s.sql(
        "select coalesce(o.day, to_date(e.ts)) as day, e.id from orders o full join events e on o.day = to_date(e.ts)"
    ),
}
# Here nobody can look, so all is computed.
UNSEEN: dict[str, tuple[Make, str]] = {
    "mapInPandas": (lambda s: s.orders.mapInPandas(_same, s.orders.schema), "can't look into its `mapInPandas`"),
    "mapInArrow": (lambda s: s.orders.mapInArrow(_same, s.orders.schema).groupBy("id").count(), "`mapInArrow`"),
    "applyInPandas": (
        lambda s: s.orders.groupBy("id").applyInPandas(_same, s.orders.schema),
        "its `applyInPandas` is not grouped by `day`",
    ),
    "cogroup": (
        lambda s: (
            s.orders.groupBy("id").cogroup(s.items.groupBy("id")).applyInPandas(lambda left, _: left, s.orders.schema)
        ),
        "its `applyInPandas` is not grouped by `day`",
    ),
    "an RDD": (
        lambda s: s.orders.rdd.map(lambda row: row).toDF(s.orders.schema).groupBy("id").count(),
        "it goes through an RDD or a checkpoint",
    ),
    "a checkpoint": (lambda s: s.orders.localCheckpoint().groupBy("id").count(), "RDD or a checkpoint"),
    "lookback, rows of a window": (
        lambda s: s.past.selectExpr("day", "sum(amount) over (order by day rows 5 preceding) as n"),
        "its window stays within its lookback",
    ),
    "lookback, the row before": (
        lambda s: s.past.selectExpr("day", "lag(id) over (order by day) as n"),
        "its window stays within",
    ),
    "lookback, joined": (
        lambda s: s.orders.join(s.past.select("id", "amount"), "id").groupBy("id").count(),
        "its rows stay within its lookback",
    ),
    "lookback, joined too far back": (
        lambda s: s.sql("select o.day, p.id from orders o join past p on p.day between o.day - 6 and o.day"),
        "its rows stay within its lookback",
    ),
    "lookback, joined forwards": (
        lambda s: s.sql("select o.day, p.id from orders o join past p on p.day between o.day - 1 and o.day + 1"),
        "its rows stay within its lookback",
    ),
    "lookback in a subquery": (
        lambda s: s.sql(
            "select day, (select sum(p.amount) from past p where p.day between o.day - 5 and o.day) as n from orders o"
        ),
        "its subquery stays within its lookback",
    ),
    "lookback, not grouped": (lambda s: s.past.groupBy("id").count(), "its aggregate stays within its lookback"),
    "lookback, moved forward": (
        lambda s: s.sql(
            "select date_add(day, k) as day, count(*) n from past lateral view explode(sequence(0, 5)) as k group by 1"
        ),
        "its aggregate stays within its lookback",
    ),
    "lookback, other days": (lambda s: s.past.selectExpr("date_add(day, 1) as day"), "its column `day` stays within"),
}
BAD: dict[str, tuple[Make, str]] = {
    "group": (lambda s: s.orders.groupBy("id").agg({"day": "max"}), "its aggregate does not group by it"),
    "group by nothing": (lambda s: s.orders.selectExpr("max(day) as day"), "aggregate does not group by it"),
    "count distinct days": (lambda s: s.sql("select shop, count(distinct day) from orders group by 1"), "aggregate"),
    "group by another date": (
        lambda s: s.sql("select date_trunc('month', day) day, count(*) from orders group by 1"),
        "aggregate does not group by it",
    ),
    "rollup": (
        lambda s: s.sql("select day, id, count(*) from orders group by rollup (day, id)"),
        "its grouping in several ways does not always have it",
    ),
    "cube": (lambda s: s.orders.cube("day", "id").count(), "outside of rollup or cube"),
    "window": (lambda s: s.orders.withColumn("n", _numbered("id")), "its window is not partitioned by it"),
    "window over all": (lambda s: s.orders.selectExpr("*", "sum(amount) over (order by day) as n"), "window"),
    "the last row of each": (lambda s: s.orders.withColumn("n", _numbered("shop")).where("n = 1"), "partitionBy"),
    "distinct": (
        lambda s: s.orders.select("id").distinct().crossJoin(s.rates.select("day")),
        "its distinct does not compare it",
    ),
    "distinct in SQL": (lambda s: s.sql("select distinct id from orders"), "distinct does not compare it"),
    "one per key": (lambda s: s.orders.dropDuplicates(["id"]), "keep `day` among the columns"),
    "limit": (lambda s: s.orders.orderBy("amount").limit(2), "its limit counts the rows of all slices"),
    "limit, grouped": (lambda s: s.orders.limit(2).groupBy("day").count(), "limit"),
    "offset": (lambda s: s.orders.offset(1), "its offset counts"),
    "inner join": (lambda s: _on(s, "inner", "id"), "its join does not join on it"),
    "inner join, then grouped": (lambda s: _on(s, "inner", "id").groupBy("day").count(), "join on `day` too"),
    "left join": (lambda s: _on(s, "left", "id"), "its join does not join on it"),
    "semi join": (lambda s: _on(s, "left_semi", "id"), "put the input in reference="),
    "anti join": (lambda s: _on(s, "left_anti", "id"), "its join does not join on it"),
    "right join": (lambda s: s.orders.join(s.items.drop("day"), "id", "right"), "join"),
    "full join": (lambda s: s.orders.join(s.items.drop("day"), "id", "full"), "join"),
    "join of the day before": (
        lambda s: s.sql("select o.day, i.id from orders o join items i on i.day = date_sub(o.day, 1)"),
        "join",
    ),
    "join within a range": (lambda s: s.sql("select o.day from orders o join items i on i.day <= o.day"), "join"),
    "join with or": (lambda s: s.sql("select o.day from orders o join items i on i.day = o.day or i.id = 1"), "join"),
    "cross join": (lambda s: s.orders.crossJoin(s.items.select("amount")), "join"),
    "self join": (lambda s: s.orders.join(s.orders.selectExpr("id", "amount as n"), "id"), "join"),
    "the third of three": (
        lambda s: s.orders.join(s.items.select("day", "id"), ["day", "id"]).join(s.events.select("id"), "id"),
        "join",
    ),
    "reference that is kept": (lambda s: s.rates.join(s.orders.drop("day"), "id", "left"), "join"),
    "reference, full": (lambda s: s.orders.join(s.rates.drop("day"), "id", "full"), "join"),
    "reference without its slices": (lambda s: s.rates.join(s.orders, "id", "left_anti"), "join"),
    "the nullable side's day": (
        lambda s: s.sql("select i.day from orders o left join items i on i.day = o.day"),
        "its column `day` is not the one that its inputs are sliced by",
    ),
    "one side's day of a full join": (
        lambda s: s.sql("select o.day from orders o full join items i on i.day = o.day"),
        "its column `day` is not the one",
    ),
    "coalesce with a literal": (
        lambda s: s.sql(
            "select coalesce(i.d, o.day) day from orders o "
            "left join (select coalesce(day, date'2026-01-01') d, day from items) i on i.day = o.day"
        ),
        "its column `day`",
    ),
    "another column as the key": (lambda s: s.rates.join(s.orders.drop("day"), "id"), "its column `day`"),
    "key computed anew": (lambda s: s.orders.selectExpr("date_add(day, 1) as day"), "its column `day`"),
    "random key": (lambda s: s.orders.selectExpr("if(rand() < 2, day, null) as day"), "its column `day`"),
    "no such column": (lambda s: s.orders.select("id"), "it makes no column `day`"),
    "the wrong expression": (lambda s: s.events.selectExpr("to_date(ts, 'yyyy') as day"), "its column `day`"),
    "union with another column": (
        lambda s: s.orders.select("day", "id").union(s.rates.join(s.items, "id").select(s.rates.day, "id")),
        "its column `day`",
    ),
    "union, then grouped": (lambda s: s.orders.union(s.items).groupBy("id").count(), "aggregate"),
    "intersect": (lambda s: s.orders.select("id").intersect(s.items.select("id")), "its intersect does not compare it"),
    "except": (lambda s: s.sql("select id from orders except select id from items"), "its except does not compare it"),
    "CTE": (lambda s: s.sql("with x as (select id, count(*) n from orders group by id) select * from x"), "aggregate"),
    "CTE, joined": (
        lambda s: s.sql("with x as (select * from orders) select a.day, b.id from x a join x b on a.id = b.id"),
        "join",
    ),
    "exists": (
        lambda s: s.sql("select * from orders o where exists (select 1 from items i where i.id = o.id)"),
        "its subquery looks at rows of other slices",
    ),
    "in": (lambda s: s.sql("select * from orders where id in (select id from items)"), "its subquery"),
    "not in, where a null decides": (
        lambda s: s.sql("select * from orders where day not in (select day from items)"),
        "its subquery",
    ),
    "the last day": (
        lambda s: s.sql("select * from orders where day = (select max(day) from orders)"),
        "the aggregate in its subquery does not group by it",
    ),
    "scalar of other columns": (
        lambda s: s.sql("select day, (select max(amount) from items i where i.id = o.id) as n from orders o"),
        "the aggregate in its subquery",
    ),
    "scalar for a reference": (lambda s: s.sql("select day, (select max(amount) from orders) from rates"), "aggregate"),
    "lateral": (
        lambda s: s.sql("select o.day, n from orders o, lateral (select i.id n from items i where i.id = o.id)"),
        "join",
    ),
    "SQL pipe": (lambda s: s.sql("from orders |> aggregate max(day) as day group by id"), "aggregate"),
    "SQL pipe with a window": (lambda s: s.sql("from orders |> extend sum(amount) over () as n"), "its window"),
    # Spark leaves an operator of its own in the plan after a filter, an order and a limit of a pipe.
    "SQL pipe, filtered first": (
        lambda s: s.sql("from orders |> where id > 0 |> extend sum(amount) over () as n"),
        "its window",
    ),
    "SQL pipe, ordered first": (
        lambda s: s.sql("from orders |> order by id |> aggregate max(day) as day group by id"),
        "aggregate",
    ),
    "SQL pipe with a limit": (lambda s: s.sql("from orders |> limit 3"), "limit"),
    "before mapInPandas": (lambda s: s.orders.limit(1).mapInPandas(_same, s.orders.schema), "limit"),
}
TWO: dict[str, tuple[Make, str | None]] = {
    "group": (lambda s: s.orders.groupBy("day", "shop").count(), None),
    "group by one": (lambda s: s.orders.groupBy("day", "id").agg({"shop": "max"}), "does not group by `shop`"),
    "join": (lambda s: s.orders.join(s.items.drop("id", "amount"), ["day", "shop"], "full"), None),
    "join on one": (lambda s: s.orders.join(s.items.select("day", "id"), ["day", "id"]), "does not join on"),
    "filter on both": (
        lambda s: s.sql("select o.day, i.shop from orders o, items i where o.shop = i.shop and i.day = o.day"),
        None,
    ),
    "swapped": (lambda s: s.orders.selectExpr("day", "cast(id as string) as shop"), "its column `shop`"),
    "expression": (lambda s: s.sql("select to_date(ts) day, shop, count(*) n from events group by all"), None),
    "in": (lambda s: s.sql("select * from orders where (day, shop) in (select day, shop from items)"), None),
    "in by one": (lambda s: s.sql("select * from orders where day in (select day from items)"), "its subquery"),
}


TOO_FAR: dict[str, tuple[str, str]] = {
    "a day more": ("order by day range between interval 6 days preceding and current row", "its window reads 6 slices"),
    "all before": ("order by day", "its window reads all earlier slices"),
    "all": ("", "its window reads all earlier slices"),
    "later days": ("order by day range between current row and interval 1 day following", "or later ones"),
    "a number of each": ("order by day rows unbounded preceding", "its window reads all earlier slices"),
}
# What names the slices of orders, and whether it is recognised when a task computes it again.
EXPRESSIONS = {
    "case when id < 5 then 'a' else 'b' end": True,
    "case shop when 'a' then 1 when 'b' then 2 end": True,
    "nullif(shop, 'a')": True,
    "if(shop is null, cast(null as int), 1)": True,
    "id between 1 and 3": True,
    "decode(id, 1, 'a', 2, 'b')": True,
    "to_date(concat(shop, '-01'), 'yyyy-MM')": True,
    "transform(array(id), x -> x + 1)[0]": True,
    "aggregate(array(id, amount), 0L, (x, y) -> x + y)": True,
    "transform(array(id), x -> exists(array(amount), y -> y > x))[0]": True,
    "hash(id)": True,
    "to_json(struct(id))": False,
    "shop like 'a%'": False,
    "from_json(shop, 'a int').a": False,
}
UNFIT = {
    "rand()": "uses `rand`, which may differ whenever it is computed",
    "uuid()": "uses `uuid`, which may differ whenever it is computed",
    "date_add(current_date(), int(id))": "uses `current_date`, which may differ",
    "explode(array(id, 2))": "looks at other rows, or puts a row into several slices",
    "sum(id) over ()": "looks at other rows",
    "(select max(id) from orders)": "looks at other rows",
    "window(timestamp(day), '2 days', '1 day').start": "puts a row into several slices",
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
def test_what_is_computed_by_slices(slot: Slot, make: Make) -> None:
    assert slot.judge(make(slot), "day") is None


@pytest.mark.parametrize(("make", "reason"), UNSEEN.values(), ids=UNSEEN)
def test_what_nobody_can_see(slot: Slot, make: Make, reason: str) -> None:
    assert reason in (slot.judge(make(slot), "day") or "")


@pytest.mark.parametrize(("window", "reason"), TOO_FAR.values(), ids=TOO_FAR)
def test_a_window_beyond_the_lookback(slot: Slot, window: str, reason: str) -> None:
    frame = slot.past.selectExpr("day", f"sum(amount) over ({window}) as n")
    with pytest.raises(Mistake) as caught:
        slot.judge(frame, "day")
    assert caught.value.code == "RUN_LOOKBACK" and caught.value.at and caught.value.fix
    assert str(caught.value).startswith("RUN_LOOKBACK: task `dws.made` looks back 5 slices, but ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(("text", "is_known"), EXPRESSIONS.items(), ids=EXPRESSIONS)
def test_an_expression_that_names_slices(slot: Slot, text: str, is_known: bool) -> None:
    reason = slot.judge(slot.sql(f"select {text} as z, count(*) n from orders group by 1"), "z", orders=text)
    assert reason is None if is_known else "can't follow the expression" in (reason or "")
    for wrong in (f"select {text} as z, sum(amount) over () as n from orders", "select amount as z from orders"):
        if is_known:
            with pytest.raises(Mistake, match="RUN_NOT_BY"):
                slot.judge(slot.sql(wrong), "z", orders=text)
        else:
            assert "can't follow the expression" in (slot.judge(slot.sql(wrong), "z", orders=text) or "")


def test_a_window_of_time_names_slices(slot: Slot) -> None:
    text = "window(ts, '1 day').start"
    whole = f"select {text} as z, count(*) n from events group by {text}"
    assert slot.judge(slot.sql(f"select {text} as z, id from events"), "z", events=text) is None
    assert slot.judge(slot.sql(whole), "z", events=text) is None
    with pytest.raises(Mistake, match="its window is not partitioned by it"):
        slot.judge(
            slot.sql(f"select z, sum(id) over () n from ({whole.replace('count(*) n', 'max(id) id')})"),
            "z",
            events=text,
        )


@pytest.mark.parametrize(("text", "reason"), UNFIT.items(), ids=UNFIT)
def test_an_expression_that_names_no_slice(slot: Slot, text: str, reason: str) -> None:
    with pytest.raises(Mistake) as caught:
        slot.judge(slot.orders.selectExpr("id as z"), "z", orders=text)
    assert caught.value.code == "RUN_NOT_BY" and reason in str(caught.value) and "in by_input= " in str(caught.value)
    assert caught.value.fix.startswith("name the slice of a row by an expression of its own columns")


def test_a_number_in_another_type_is_not_the_same_expression(slot: Slot) -> None:
    for text in (
        "select hash(cast(id as int)) as z from orders",
        "select hash(i) as z from (select int(id) i from orders)",
    ):
        with pytest.raises(Mistake, match="its column `z` is not the one"):
            slot.judge(slot.sql(text), "z", orders="hash(id)")


@pytest.mark.parametrize(("make", "told"), BAD.values(), ids=BAD)
def test_what_is_not(slot: Slot, make: Make, told: str) -> None:
    frame = make(slot)
    with pytest.raises(Mistake) as caught:
        slot.judge(frame, "day")
    assert caught.value.code == "RUN_NOT_BY" and told in str(caught.value)
    assert str(caught.value).startswith("RUN_NOT_BY: task `dws.made` is computed by `day`, but ")
    assert caught.value.at and caught.value.fix


@pytest.mark.parametrize(("make", "told"), TWO.values(), ids=TWO)
def test_two_columns(slot: Slot, make: Make, told: str | None) -> None:
    frame = make(slot)
    if told is None:
        assert slot.judge(frame, "day", "shop") is None
    else:
        with pytest.raises(Mistake, match=told):
            slot.judge(frame, "day", "shop")
