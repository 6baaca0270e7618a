"""Which tasks are computed slice by slice, as their plans on real tables in a real slot show it."""

import pytest

from runnel.errors import Mistake
from tests.run.analysis.sliced_tables import MakeFrame, Slot, join_items, numbered, return_frames

pytestmark = pytest.mark.spark
GOOD: dict[str, MakeFrame] = {
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
    "window": lambda s: s.orders.withColumn("n", numbered("day")),
    "first of each": lambda s: s.orders.withColumn("n", numbered("shop", "day")).where("n = 1").drop("n"),
    "window over an expression": lambda s: s.sql(
        "select to_date(ts) as day, id, count(*) over (partition by cast(ts as date)) n from events"
    ),
    "distinct": lambda s: s.orders.select("day", "shop").distinct(),
    "one per key": lambda s: s.orders.select("day", "shop").dropDuplicates(["shop", "day"]),
    "inner join on a condition": lambda s: join_items(s, "inner", "day", "id"),
    "inner join, null-safe": lambda s: s.orders.join(
        s.items, s.orders.day.eqNullSafe(s.items.day) & (s.orders.id == s.items.id)
    ).select(s.items.day, s.orders.id),
    "left join on a condition": lambda s: join_items(s, "left", "id", "day"),
    "semi join": lambda s: join_items(s, "left_semi", "id", "day"),
    "anti join": lambda s: join_items(s, "left_anti", "id", "day"),
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
    "applyInPandas": lambda s: s.orders.groupBy("day", "id").applyInPandas(return_frames, s.orders.schema),
    "cogroup": lambda s: (
        s.orders.groupBy("day").cogroup(s.items.groupBy("day")).applyInPandas(lambda left, _: left, s.orders.schema)
    ),
    "cogroup with a reference": lambda s: (
        s.rates.groupBy("day").cogroup(s.orders.groupBy("day")).applyInPandas(lambda _, right: right, s.orders.schema)
    ),
    "mapInPandas of a reference": lambda s: s.orders.join(
        s.rates.mapInPandas(return_frames, s.rates.schema).drop("day"), "id"
    ),
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
TWO: dict[str, tuple[MakeFrame, str | None]] = {
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


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
def test_what_is_computed_by_slices(slot: Slot, make: MakeFrame) -> None:
    assert slot.judge(make(slot), "day") is None


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


@pytest.mark.parametrize(("make", "told"), TWO.values(), ids=TWO)
def test_two_columns(slot: Slot, make: MakeFrame, told: str | None) -> None:
    frame = make(slot)
    if told is None:
        assert slot.judge(frame, "day", "shop") is None
    else:
        with pytest.raises(Mistake, match=told):
            slot.judge(frame, "day", "shop")
