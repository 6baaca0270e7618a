"""Tasks with `by=` whose plan does not show that slices are independent: in full, with a warning, and right."""

import json

import pytest

from runnel.run.results.run_result import RunResult
from tests.run.project import Project, reasons
from tests.run.run_inspection import actions, step_of

pytestmark = pytest.mark.usefixtures("few_rows")

# Each of these looks at rows of all days while it is called, or in a function that nobody can look into.
TASKS = """
@rn.task("dws.counted", by="day")
def counted(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("n")).withColumn("all", F.lit(orders.count()))

@rn.task("dws.collected", by="day")
def collected(orders):
    most = orders.agg(F.max("amount")).collect()[0][0]
    return orders.select("day", (F.col("amount") / most).alias("share"))

@rn.task("dws.other_groups", by="day")
def other_groups(orders):
    def share(rows):
        rows["share"] = rows["amount"] / rows["amount"].sum()
        return rows[["id", "day", "share"]]
    return orders.groupBy("id").applyInPandas(share, "id long, day date, share double")
"""
WHY = {
    "dws.counted": "it computes something while it is called, such as count() or collect()",
    "dws.collected": "it computes something while it is called, such as count() or collect()",
    "dws.other_groups": "its `applyInPandas` is not grouped by `day`",
}
SEEN = """
@rn.task("dws.own_groups", by="day")
def own_groups(orders):
    def share(rows):
        rows["share"] = rows["amount"] / rows["amount"].sum()
        return rows[["id", "day", "share"]]
    return orders.groupBy("day").applyInPandas(share, "id long, day date, share double")

@rn.task("dws.viewed", by="day")
def viewed(orders, spark):
    orders.createOrReplaceTempView("seen_orders")
    return spark.sql("from seen_orders |> aggregate sum(amount) as n group by day")

@rn.task("dws.promised", by="day", trust_by=True)
def promised(orders):
    def same(frames):
        yield from frames
    return orders.mapInPandas(same, orders.schema)
"""


def ten_days(project: Project) -> None:
    for number in range(1, 11):
        project.orders(f"{number}", (number % 3, f"2026-01-{number:02}", 5 + number))


def warned(ran: RunResult, table: str) -> str:
    return " ".join(step_of(ran, table).warnings)


def test_what_looks_at_all_rows_is_computed_in_full_with_a_warning(project: Project) -> None:
    project.flow(TASKS + SEEN)
    ten_days(project)
    first = project.run()
    for table, why in WHY.items():
        expected = (
            f"is computed in full whenever an input changes, because {why}; if each slice is computed from its own "
        )
        assert expected + "rows only, write trust_by=True" in warned(first, table)
    assert not warned(first, "dws.own_groups") and not warned(first, "dws.viewed")
    project.orders("late", (1, "2026-01-02", 100))
    project.run("ods.orders")
    plan = reasons(project.plan())
    assert {table: plan[table].startswith("full: ") and WHY[table] in plan[table] for table in WHY} == dict.fromkeys(
        WHY, True
    )
    assert plan["dws.own_groups"].startswith("slices: ") and plan["dws.promised"].startswith("slices: ")
    done = actions(project.run())
    assert {table: done[table] for table in WHY} == dict.fromkeys(WHY, "full")
    seen = ("dws.own_groups", "dws.viewed", "dws.promised")
    assert {table: done[table] for table in seen} == dict.fromkeys(seen, "slices")
    assert {row[2] for row in project.rows("dws.counted")} == {11}
    assert max(row[1] for row in project.rows("dws.collected")) == 1
    for table, place in (("dws.other_groups", 0), ("dws.own_groups", 1)):
        groups = {row[place] for row in project.rows(table)}
        assert sum(row[2] for row in project.rows(table)) == pytest.approx(len(groups))


def test_a_result_of_an_earlier_runnel_is_looked_at_before_slices_are_computed(project: Project) -> None:
    project.flow(TASKS.partition('@rn.task("dws.collected"')[0] + SEEN.partition('@rn.task("dws.viewed"')[0])
    ten_days(project)
    project.run()
    _forget_what_was_seen(project)
    project.orders("late", (1, "2026-01-02", 100))
    assert actions(project.run()) == {"dws.counted": "full", "dws.own_groups": "slices"}
    project.orders("later", (1, "2026-01-03", 100))
    project.run("ods.orders")
    assert reasons(project.plan())["dws.counted"].startswith("full: ")


def _forget_what_was_seen(project: Project) -> None:
    from runnel.lake.catalog import schema

    def forget(connection: object) -> None:
        for row in connection.execute(schema.results.select()).all():  # type: ignore[attr-defined]
            detail = json.dumps({key: part for key, part in json.loads(row.detail).items() if key != "why_whole"})
            same = schema.results.c.key == row.key
            connection.execute(schema.results.update().where(same).values(detail=detail))  # type: ignore[attr-defined]

    with project.open() as lake:
        lake.store.db.write(forget)


CASE = "case when id < 5 then 'a' else 'b' end"


@pytest.mark.parametrize("more", ["", ", sum(amount) over () as total"], ids=["its own rows", "all rows"])
def test_slices_that_case_names(project: Project, more: str) -> None:
    project.flow(
        f'''
        @rn.task("dws.z", by="z", by_input={{"orders": "{CASE}"}})
        def z(orders):
            return orders.selectExpr("{CASE} as z", "amount"{f', "{more[2:]}"' if more else ""})
        '''
    )
    project.orders("a", (1, "2026-01-01", 1), (2, "2026-01-01", 2), (7, "2026-01-01", 3))
    ran = project.run()
    if more:
        assert [error.code for error in ran.errors] == ["RUN_NOT_BY"]
        assert "its window is not partitioned by it" in str(ran.errors[0])
        return
    project.orders("b", (8, "2026-01-02", 4))
    assert actions(project.run()) == {"dws.z": "slices"}
    assert project.rows("dws.z") == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]


def test_slices_that_a_window_of_time_names(project: Project) -> None:
    start = "window(timestamp(day), '1 day').start"
    project.flow(
        f'''
        @rn.task("dws.z", by="z", by_input={{"orders": "{start}"}})
        def z(orders):
            return orders.selectExpr("{start} as z", "amount")
        '''
    )
    ten_days(project)
    project.orders("null", (1, "", 1))
    project.run()
    project.orders("late", (1, "2026-01-02", 100), (2, "", 1))
    assert actions(project.run()) == {"dws.z": "slices"}
    rows = project.rows("dws.z")
    project.run(full_refresh=True)
    assert len(rows) == 11 and project.rows("dws.z") == rows


def test_an_expression_that_cannot_be_followed_is_named(project: Project) -> None:
    project.flow(
        """
        @rn.task("dws.z", by="z", by_input={"orders": "to_json(struct(id))"})
        def z(orders):
            return orders.selectExpr("to_json(struct(id)) as z", "sum(amount) over () as total")
        """
    )
    project.orders("a", (1, "2026-01-01", 1), (2, "2026-01-01", 2))
    first = project.run()
    assert "because Runnel can't follow the expression 'to_json(struct(id))' of by_input=" in warned(first, "dws.z")
    project.orders("b", (2, "2026-01-02", 4))
    assert actions(project.run()) == {"dws.z": "full"}
    assert [total for _, total in project.rows("dws.z")] == [7, 7, 7]


def test_a_zero_that_becomes_minus_zero_is_a_change(project: Project) -> None:
    project.flow(
        """
        rn.source("ods.x", rn.files("data/x/*.csv", schema="id long, x double"))

        @rn.task("dws.x", by="id")
        def copied(x):
            return x
        """,
        orders=None,
    )
    lines = [f"{number},{number}.0" for number in range(5)]
    project.write("data/x/a.csv", "\n".join(["id,x", *lines]))
    project.run()
    project.write("data/x/a.csv", "\n".join(["id,x", "0,-0.0", *lines[1:]]))
    assert actions(project.run()) == {"dws.x": "slices"}
    assert repr(project.rows("dws.x")[0]) == "(0, -0.0)"


def test_a_time_zone_that_changes_recomputes_everything(project: Project) -> None:
    project.flow(
        """
        @rn.task("dws.hours", by="day")
        def hours(orders):
            return orders.selectExpr("day", "hour(timestamp_seconds(amount)) as hour")
        """
    )
    ten_days(project)
    project.run()
    settings = project.root / "runnel.toml"
    before = settings.read_text()
    settings.write_text(before + '[spark]\nconf = { "spark.sql.shuffle.partitions" = 3 }\n')
    assert reasons(project.plan())["dws.hours"].startswith("skip: ")
    settings.write_text(before + '[spark]\nconf = { "spark.sql.session.timeZone" = "Asia/Tokyo" }\n')
    project.orders("late", (1, "2026-01-02", 100))
    project.run("ods.orders")
    assert reasons(project.plan())["dws.hours"] == (
        "full: the Spark setting `spark.sql.session.timeZone` is Asia/Tokyo"
    )


@pytest.mark.parametrize("by_input", ["", ', by_input={"orders": "date_add(day, 0)"}'], ids=["column", "expression"])
def test_a_task_that_leaves_out_most_slices_is_still_computed_by_slices(project: Project, by_input: str) -> None:
    day = "date_add(day, 0)" if by_input else "day"
    project.flow(
        f"""
        @rn.task("dws.large", by="day"{by_input})
        def large(orders):
            days = orders.selectExpr("{day} as day", "amount").groupBy("day")
            return days.agg(F.sum("amount").alias("n")).where("n > 28")
        """
    )
    project.orders("a", *((number, f"2026-01-{number:02}", number) for number in range(1, 31)))
    project.run()
    assert len(project.rows("dws.large")) == 2
    project.orders("b", *((number, f"2026-01-{number:02}", 30) for number in range(1, 5)))
    ran = project.run()
    assert actions(ran) == {"dws.large": "slices"} and step_of(ran, "dws.large").reason.startswith("4 of 30, ")
    assert len(project.rows("dws.large")) == 6


def test_a_file_with_the_same_rows_in_another_order_computes_nothing(project: Project) -> None:
    project.flow(
        """
        rn.source("ods.x", rn.files("data/x/*.csv", schema="id long, x double"))

        @rn.task("dws.total", inputs={"x": "ods.x"})
        def total(x):
            return x.groupBy().agg(F.count("*").alias("n"))

        @rn.task("dws.copied", inputs={"x": "ods.x"}, rowwise=True)
        def copied(x):
            return x
        """,
        orders=None,
    )
    project.write("data/x/a.csv", "id,x\n1,0.0\n2,1.5\n2,1.5\n")
    project.run()
    project.write("data/x/a.csv", "id,x\n2,1.5\n1,0.0\n2,1.5\n")
    ran = project.run()
    assert actions(ran) == {"dws.total": "skip", "dws.copied": "skip"}
    assert step_of(ran, "dws.total").reason.endswith("; the rows are the same")
    assert {reason.partition(":")[0] for reason in reasons(project.plan("dws.*")).values()} == {"skip"}
    project.write("data/x/a.csv", "id,x\n2,1.5\n1,-0.0\n2,1.5\n")
    assert actions(project.run())["dws.copied"] == "full"
    assert repr(project.rows("dws.copied")[0]) == "(1, -0.0)"
