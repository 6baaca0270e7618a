"""Rows of a `rowwise` task without a key leave with their file: as many copies as were made of it."""

import pytest

from runnel.run.results.run_result import RunResult
from tests.run.equivalence.mutations import thresholds
from tests.run.project import Project
from tests.run.run_inspection import step_of

FLOW = """
import uuid

from pyspark.sql.types import StringType

@rn.task("dwd.plain", rowwise=True)
def plain(orders):
    return orders.select("amount")

@rn.task("dwd.numbers", rowwise=True)
def numbers(orders):
    sign = F.expr("double(-(id % 2)) * 0.0D")  # -0.0 for odd ones; Spark takes both zeros in an if() for the same
    return orders.select(sign.alias("zero"), F.expr("if(amount = 2, float('NaN'), float(amount))").alias("a`b.c"))

@rn.task("dwd.nested", rowwise=True)
def nested(orders):
    return orders.selectExpr("array(amount, null) as list", "struct(day, string(null) as none) as pair")

@rn.task("dwd.maps", rowwise=True)
def maps(orders):
    return orders.selectExpr("map('amount', amount) as entries")

@rn.task("dwd.random", rowwise=True)
def random(orders):
    return orders.selectExpr("amount", "rand() as chance")

@rn.task("dwd.unlike", rowwise=True)
def unlike(orders):
    return orders.select(F.udf(lambda: str(uuid.uuid4()), StringType())().alias("name"))

@rn.task("dwd.checked", rowwise=True, checks=[rn.check("amount <> 2", on_fail="drop")])
def checked(orders):
    return orders.select("amount")
"""
DAY = "2026-01-01"
BY_ROWS = ("dwd.plain", "dwd.numbers", "dwd.nested")
IN_FULL = {
    "dwd.maps": "; in full, because the values of its column entries can't be compared exactly",
    "dwd.random": "; in full, because it uses `rand`, which may differ each time it is computed",
    "dwd.unlike": "; in full, because its table lacks rows that the task makes of the rows that were removed",
    "dwd.checked": ", and the task has no key",
}


def rows(first: int, number: int) -> list[tuple[int, str, int]]:
    """Return orders of which many have the same amount."""
    return [(at, DAY, at % 3) for at in range(first, first + number)]


def reason(ran: RunResult, table: str) -> tuple[str, str]:
    step = step_of(ran, table)
    return step.action, step.reason


def test_copies_leave_with_their_file(project: Project) -> None:
    project.flow(FLOW)
    project.orders("a", *rows(0, 60))
    project.orders("b", *rows(3, 4))
    project.write("data/orders/c.csv", f"id,day,amount\n1,{DAY},\n2,,2\n")
    assert not project.run().errors
    project.orders("b", *rows(3, 1))
    project.write("data/orders/c.csv", f"id,day,amount\n1,{DAY},\n2,,1\n")
    ran = project.run(verify=True)
    assert not ran.errors, ran.errors[0]
    assert {str(step.table): step.action for step in ran.steps if str(step.table) in BY_ROWS} == dict.fromkeys(
        BY_ROWS, "rows"
    )
    assert reason(ran, "dwd.plain")[1].endswith("; without a key, by all values of a row")
    for table, why in IN_FULL.items():
        action, text = reason(ran, table)
        assert action == "full" and text.endswith(why), (table, text)
    left = [*rows(0, 60), *rows(3, 1), (1, DAY, None), (2, None, 1)]
    assert project.rows("dwd.plain") == sorted(((amount,) for *_, amount in left), key=repr)
    # minus zero and zero are two values
    with project.open() as lake:
        found = sorted(row[0] for row in lake.read("dwd.numbers").selectExpr("string(zero)").collect())
    assert found == sorted("0.0" if number % 2 == 0 else "-0.0" for number, *_ in left)
    before = project.commits()
    project.write("data/orders/c.csv", f"id,day,amount\n2,,1\n1,{DAY},\n")
    again = project.run("dwd.plain", "ods.orders")
    assert step_of(again, "dwd.plain").state == "skipped", "the same rows again"
    assert project.commits() == before + 1


@pytest.mark.parametrize("share", [None, 100.0], ids=["many rows", "however many"])
def test_many_rows_are_computed_in_full(project: Project, share: float | None) -> None:
    project.flow(FLOW[: FLOW.index('@rn.task("dwd.numbers"')])
    project.orders("a", *rows(0, 6))
    project.orders("b", *rows(0, 6))
    project.run()
    project.orders("b", *rows(0, 5))
    with thresholds(most=share):
        ran = project.run()
    expected = "rows" if share else "full"
    assert step_of(ran, "dwd.plain").action == expected
    assert project.rows("dwd.plain") == sorted((amount,) for *_, amount in [*rows(0, 6), *rows(0, 5)])
