"""Mistakes about `by=` are reported when a task is first computed, not when it is computed again."""

import pytest

from tests.run.project import Project, did

REFUSALS = {
    "a map": (
        'by="d", by_input={"orders": "map(id, 1)"}',
        'orders.select(F.create_map("id", F.lit(1)).alias("d"))',
        "RUN_NOT_BY: task `dws.t` is computed by `d`, but its column `d` is a map, which can't be compared",
    ),
    "a column that the task does not make": (
        'by="dya"',
        'orders.groupBy("day").count()',
        "RUN_NOT_BY: task `dws.t` is computed by `dya`, but it returns no column `dya`; close: `day`",
    ),
    "syntax": (
        'by="d", by_input={"orders": "to_date(day"}',
        'orders.select(F.col("day").alias("d"))',
        "RUN_BY_INPUT: task `dws.t` has by_input= 'to_date(day', but Syntax error at or near end of input",
    ),
    "an unknown column": (
        'by="d", by_input={"orders": "to_date(dya)"}',
        'orders.select(F.col("day").alias("d"))',
        "RUN_BY_INPUT: task `dws.t` has by_input= 'to_date(dya)', but there is no column `dya`; close: `day`",
    ),
    "an unknown function": (
        'by="d", by_input={"orders": "to_dat(day)"}',
        'orders.select(F.col("day").alias("d"))',
        "RUN_BY_INPUT: task `dws.t` has by_input= 'to_dat(day)', but Spark has no function `to_dat`; close: `to_date`",
    ),
    "an aggregate": (
        'by="d", by_input={"orders": "max(id)"}',
        'orders.select(F.col("id").alias("d"))',
        "RUN_NOT_BY: task `dws.t` is computed by `d`, but 'max(id)' in by_input= looks at other rows",
    ),
}


@pytest.mark.parametrize(("options", "body", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refused_at_the_first_run(project: Project, options: str, body: str, message: str) -> None:
    project.flow(f"""
    @rn.task("dws.t", {options})
    def t(orders):
        return {body}
    """)
    project.orders("a", (1, "2026-01-01", 5))
    (error,) = project.run().errors
    assert str(error).startswith(message)


def test_no_input_has_the_column(project: Project) -> None:
    project.flow("""
    @rn.task("dws.t", by="d")
    def t(orders):
        return orders.groupBy(F.col("day").alias("d")).count()
    """)
    project.orders("a", (1, "2026-01-01", 5))
    warnings = [warning for step in project.run().steps for warning in step.warnings]
    assert warnings == [
        "is computed in full whenever an input changes, because none of its inputs has `d`; "
        "say in by_input= what it is made from"
    ]


def test_the_last_day_of_all(project: Project) -> None:
    project.flow(
        """
    rn.source("ods.visits", rn.files("data/visits/*.csv", schema="id long, seen_at timestamp"))

    @rn.task("dws.t", by="day", by_input={"visits": "to_date(seen_at)"})
    def t(visits):
        return visits.groupBy(F.to_date("seen_at").alias("day")).count()
    """,
        orders=None,
    )
    days = ["2026-01-01", "2026-01-02", "2026-01-03", "9999-12-31"]
    project.write("data/visits/a.csv", "id,seen_at\n" + "".join(f"{n},{day}T01:00:00\n" for n, day in enumerate(days)))
    project.run()
    project.write("data/visits/b.csv", "id,seen_at\n9,9999-12-31T23:59:59\n")
    assert did(project.run()) == {"ods.visits": "ingest", "dws.t": "slices"}
    assert [count for _, count in project.rows("dws.t")] == [1, 1, 1, 2]


def test_a_lookup_table_that_has_the_column_by_chance(project: Project) -> None:
    """With "*" an input belongs to all slices: whatever changes in it, all of them are computed."""
    project.flow("""
    rn.source("ods.users", rn.files("data/users/*.csv", schema="id long, day date, name string"))

    @rn.task("dws.t", by="day", by_input={"users": "*"})
    def t(orders, users):
        return orders.join(users.drop("day"), "id", "left").select("day", "id", "name")
    """)
    project.orders("a", *((number, f"2026-01-{number:02}", 5) for number in range(1, 6)))
    project.write("data/users/a.csv", "id,day,name\n1,2025-12-01,ann\n")
    assert project.run().state == "succeeded"
    project.orders("b", (2, "2026-01-02", 7))
    assert did(project.run()) == {"ods.orders": "ingest", "dws.t": "slices"}
    project.write("data/users/b.csv", "id,day,name\n3,2025-12-02,eve\n")
    result = project.run()
    assert did(result) == {"ods.users": "ingest", "dws.t": "full"}
    assert any("each slice reads all of it" in step.reason for step in result.steps)
    assert [row[2] for row in project.rows("dws.t") if row[1] == 3] == ["eve"]


def test_a_join_on_something_else_names_the_ways_out(project: Project) -> None:
    project.flow("""
    rn.source("ods.users", rn.files("data/users/*.csv", schema="id long, day date, name string"))

    @rn.task("dws.t", by="day")
    def t(orders, users):
        return orders.join(users.drop("day"), "id", "left").select("day", "id", "name")
    """)
    project.orders("a", (1, "2026-01-01", 5))
    project.write("data/users/a.csv", "id,day,name\n1,2025-12-01,ann\n")
    (error,) = project.run().errors
    assert error.code == "RUN_NOT_BY"
    assert error.fix == (
        'join on `day` too, put the input in reference=, or write by_input={"INPUT": "*"} if each slice reads all of it'
    )
