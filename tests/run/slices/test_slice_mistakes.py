"""Mistakes about `by=` are reported by a plan or, if only Spark sees them, when a task is first computed."""

import pytest

from runnel.errors import Mistake
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
        'by="d", by_input={"orders": "day +"}',
        'orders.select(F.col("day").alias("d"))',
        "RUN_BY_INPUT: task `dws.t` has by_input= 'day +', but Syntax error at or near end of input",
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


VALIDATED = {
    "a bracket": ("to_date(day", "which has a `(` that is not closed"),
    "a quote": ("date_trunc('day, ts)", "which has a quote ' that is not closed"),
    "a closing bracket": ("to_date(day))", "which has a `)` too many"),
    "an aggregate": ("max(id)", "which looks at other rows: `max`"),
    "a window function": ("row_number() over (order by id)", "which looks at other rows: `over`"),
    "several rows from one": ("explode(array(id))", "which puts a row into several slices: `explode`"),
}


@pytest.mark.parametrize(("expression", "problem"), VALIDATED.values(), ids=VALIDATED)
def test_refused_before_the_first_run(project: Project, expression: str, problem: str) -> None:
    project.flow(f"""
    @rn.task("dws.t", by="d", by_input={{"orders": {expression!r}}})
    def t(orders):
        return orders.select(F.col("day").alias("d"))
    """)
    with pytest.raises(Mistake) as refusal:
        project.plan()
    assert refusal.value.code == "DECLARE_OPTION"
    quoted = repr(expression) if "'" not in expression else f'"{expression}"'
    assert refusal.value.what == f"task `dws.t`: `by_input` gives {quoted} for orders, {problem}"
    assert refusal.value.fix == "name the slice of a row by an expression of its own columns"


SQL_TASK = """/* runnel
by = {by!r}
by_input = {{ orders = {by_input!r} }}
*/

select {columns} from ods.orders
"""
SQL_REFUSALS = {
    "syntax": ("d", "day +", "day as d", "RUN_BY_INPUT", 3),
    "no column": ("d", "dya", "day as d", "RUN_BY_INPUT", 3),
    "a column that the task does not make": ("dya", "day", "day as d", "RUN_NOT_BY", 2),
    "another column of that name": ("day", "day", "date_add(day, 1) as day", "RUN_NOT_BY", 6),
}


@pytest.mark.parametrize(("by", "by_input", "columns", "code", "line"), SQL_REFUSALS.values(), ids=SQL_REFUSALS)
def test_sql_tasks_are_blamed_at_the_line_of_the_option(
    project: Project, by: str, by_input: str, columns: str, code: str, line: int
) -> None:
    project.flow("")
    project.write("flows/dws/t.sql", SQL_TASK.format(by=by, by_input=by_input, columns=columns))
    project.orders("a", (1, "2026-01-01", 5))
    (error,) = project.run().errors
    assert (error.code, error.at) == (code, f"flows/dws/t.sql:{line}"), str(error)


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


def test_windows_of_time(project: Project) -> None:
    project.flow(
        """
    rn.source("ods.visits", rn.files("data/visits/*.csv", schema="id long, seen_at timestamp"))

    @rn.task("dws.t", by="hour", by_input={"visits": "window(seen_at, '1 hour').start"})
    def t(visits):
        return visits.groupBy(F.window("seen_at", "1 hour").start.alias("hour")).count()
    """,
        orders=None,
    )
    rows = "".join(f"{hour},2026-01-01T{hour:02}:30:00\n" for hour in range(5))
    project.write("data/visits/a.csv", "id,seen_at\n" + rows)
    assert project.run().state == "succeeded"
    project.write("data/visits/b.csv", "id,seen_at\n9,2026-01-01T04:59:00\n")
    assert did(project.run()) == {"ods.visits": "ingest", "dws.t": "slices"}
    assert [count for _, count in project.rows("dws.t")] == [1, 1, 1, 1, 2]


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
