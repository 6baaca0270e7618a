"""Which tasks can't be computed slice by slice, and why: told by an error, or by a reason to compute everything."""

import pytest

from runnel.errors import Mistake
from tests.run.analysis.sliced_tables import MakeFrame, Slot, join_items, numbered, return_frames

pytestmark = pytest.mark.spark
# Here nobody can look, so all is computed.
UNSEEN: dict[str, tuple[MakeFrame, str]] = {
    "mapInPandas": (
        lambda s: s.orders.mapInPandas(return_frames, s.orders.schema),
        "can't look into its `mapInPandas`",
    ),
    "mapInArrow": (lambda s: s.orders.mapInArrow(return_frames, s.orders.schema).groupBy("id").count(), "`mapInArrow`"),
    "applyInPandas": (
        lambda s: s.orders.groupBy("id").applyInPandas(return_frames, s.orders.schema),
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
BAD: dict[str, tuple[MakeFrame, str]] = {
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
    "window": (lambda s: s.orders.withColumn("n", numbered("id")), "its window is not partitioned by it"),
    "window over all": (lambda s: s.orders.selectExpr("*", "sum(amount) over (order by day) as n"), "window"),
    "the last row of each": (lambda s: s.orders.withColumn("n", numbered("shop")).where("n = 1"), "partitionBy"),
    "distinct": (
        lambda s: s.orders.select("id").distinct().crossJoin(s.rates.select("day")),
        "its distinct does not compare it",
    ),
    "distinct in SQL": (lambda s: s.sql("select distinct id from orders"), "distinct does not compare it"),
    "one per key": (lambda s: s.orders.dropDuplicates(["id"]), "keep `day` among the columns"),
    "limit": (lambda s: s.orders.orderBy("amount").limit(2), "its limit counts the rows of all slices"),
    "limit, grouped": (lambda s: s.orders.limit(2).groupBy("day").count(), "limit"),
    "offset": (lambda s: s.orders.offset(1), "its offset counts"),
    "inner join": (lambda s: join_items(s, "inner", "id"), "its join does not join on it"),
    "inner join, then grouped": (lambda s: join_items(s, "inner", "id").groupBy("day").count(), "join on `day` too"),
    "left join": (lambda s: join_items(s, "left", "id"), "its join does not join on it"),
    "semi join": (lambda s: join_items(s, "left_semi", "id"), "put the input in reference="),
    "anti join": (lambda s: join_items(s, "left_anti", "id"), "its join does not join on it"),
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
    "no such column": (lambda s: s.orders.select("id"), "it returns no column `day`"),
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
    "before mapInPandas": (lambda s: s.orders.limit(1).mapInPandas(return_frames, s.orders.schema), "limit"),
}
TOO_FAR: dict[str, tuple[str, str]] = {
    "a day more": ("order by day range between interval 6 days preceding and current row", "its window reads 6 slices"),
    "all before": ("order by day", "its window reads all earlier slices"),
    "all": ("", "its window reads all earlier slices"),
    "later days": ("order by day range between current row and interval 1 day following", "or later ones"),
    "a number of each": ("order by day rows unbounded preceding", "its window reads all earlier slices"),
}
UNFIT = {
    "rand()": "uses `rand`, which may differ each time it is computed",
    "uuid()": "uses `uuid`, which may differ each time it is computed",
    "date_add(current_date(), int(id))": "uses `current_date`, which may differ",
    "explode(array(id, 2))": "looks at other rows, or puts a row into several slices",
    "sum(id) over ()": "looks at other rows",
    "(select max(id) from orders)": "looks at other rows",
    "window(timestamp(day), '2 days', '1 day').start": "puts a row into several slices",
}


@pytest.mark.parametrize(("make", "reason"), UNSEEN.values(), ids=UNSEEN)
def test_what_nobody_can_see(slot: Slot, make: MakeFrame, reason: str) -> None:
    assert reason in (slot.judge(make(slot), "day") or "")


@pytest.mark.parametrize(("window", "reason"), TOO_FAR.values(), ids=TOO_FAR)
def test_a_window_beyond_the_lookback(slot: Slot, window: str, reason: str) -> None:
    frame = slot.past.selectExpr("day", f"sum(amount) over ({window}) as n")
    with pytest.raises(Mistake) as caught:
        slot.judge(frame, "day")
    assert caught.value.code == "RUN_LOOKBACK" and caught.value.at and caught.value.fix
    assert str(caught.value).startswith("RUN_LOOKBACK: task `dws.made` looks back 5 slices, but ")
    assert reason in str(caught.value)


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
def test_what_is_not(slot: Slot, make: MakeFrame, told: str) -> None:
    frame = make(slot)
    with pytest.raises(Mistake) as caught:
        slot.judge(frame, "day")
    assert caught.value.code == "RUN_NOT_BY" and told in str(caught.value)
    assert str(caught.value).startswith("RUN_NOT_BY: task `dws.made` is computed by `day`, but ")
    assert caught.value.at and caught.value.fix
