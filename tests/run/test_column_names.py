"""Spark's side of it: every name that a query uses, as columns of tables that tasks and streams read and make."""

import csv
from typing import Any

import pytest

from runnel.errors import Mistake
from runnel.internal_names import ICEBERG_COLUMNS, internal_column
from tests.query_names import spark_names
from tests.run.project import Project, did

pytestmark = pytest.mark.usefixtures("few_rows")  # wide tables make long code
NAMES = spark_names()
SOURCE = f"""
WIDE = {", ".join(f"`{name}` string" for name in NAMES)!r}
rn.source("ods.wide", rn.files("data/wide/*.csv", schema="id long, day date, " + WIDE))
rn.source("ods.events", rn.files("data/events/*.csv", schema="id long, day date, " + WIDE))
"""
TASKS = """
ROWS = [rn.check("`runnel one` <> 'bad'", on_fail="quarantine"), rn.not_null("rows")]
CHECKS = [*ROWS, rn.unique("id", "times", "value")]

@rn.task("dws.rowwise", rowwise=True, key="id")
def rowwise(wide):
    return wide

@rn.task("dws.sliced", by=["input", "runnel gained"], checks=[*CHECKS, rn.references("theirs", "ods.wide.theirs")])
def sliced(wide):
    return wide

@rn.task("dws.stream", stream="events")
def stream(events):
    return events
"""
Row = tuple[Any, ...]


def row(number: int, version: int = 1) -> Row:
    return (number, f"2026-01-{number:02d}", *(f"{at}.{number}.{version}" for at in range(len(NAMES))))


def write(project: Project, name: str, *rows: Row) -> None:
    path = project.root / "data" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("id", "day", *NAMES), *rows])


def test_tasks_and_streams(project: Project) -> None:
    bad = list(row(7))
    bad[2 + NAMES.index("runnel one")] = "bad"
    project.flow(SOURCE + TASKS, orders=None)
    write(project, "wide/a", *map(row, range(10, 26)), tuple(bad))
    write(project, "wide/b", row(3))
    write(project, "events/a", row(1))
    first = project.run()
    assert not first.errors, str(first.errors[0])
    write(project, "wide/b", row(3, 2), row(4))
    write(project, "events/b", row(2))
    second = project.run()
    assert not second.errors, str(second.errors[0])
    assert (did(second)["dws.sliced"], did(second)["dws.rowwise"]) == ("slices", "rows")
    good = [*map(row, range(10, 26)), row(3, 2), row(4)]
    expected = {"ods.wide": [*good, tuple(bad)], "dws.stream": [row(1), row(2)]}
    expected |= {"dws.rowwise": [*good, tuple(bad)], "dws.sliced": good}
    shown = ", ".join(f"`{name}`" for name in NAMES)
    with project.open() as lake:
        for table, rows in expected.items():
            found = lake.query(f"select id, string(day) as day, {shown} from {table}", engine="duckdb").rows()
            assert sorted(found) == sorted(rows), table
        frame = lake.read("ods.wide").selectExpr("id", "string(day)", *(f"`{name}`" for name in NAMES))
        assert sorted(map(tuple, frame.collect())) == sorted(expected["ods.wide"])
        (aside,) = lake.quarantine("dws.sliced")
    assert '"runnel two":' in str(aside.raw) and "runnel one" in aside.reason


@pytest.mark.parametrize("name", ["_Pos", internal_column("one")], ids=["Iceberg's", "ours"])
def test_a_task_that_returns_a_reserved_name(project: Project, name: str) -> None:
    project.flow(f"""
    @rn.task("dws.day")
    def day(orders):
        return orders.withColumnRenamed("amount", {name!r})
    """)
    project.orders("a", (1, "2026-01-01", 5))
    (error,) = project.run().errors
    assert error.code == "RUN_COLUMN_NAME"
    assert isinstance(error, Mistake)
    if name.isprintable():
        assert str(error) == (
            "RUN_COLUMN_NAME: task `dws.day` returns a column '_Pos', which is the name of a column of Iceberg's own: "
            "Spark could not read the table\n  at flows/flow.py:7\n"
            '  fix: rename it: F.col("`_Pos`").alias("...")'
        )


def test_spark_keeps_the_same_names_to_itself(project: Project) -> None:
    """What Iceberg's runtime reserves is what is refused: a new version that reserves more is noticed here."""
    assert project.spark is not None
    jvm = project.spark._jvm
    assert jvm is not None
    found = {name for name in ICEBERG_COLUMNS if jvm.org.apache.iceberg.MetadataColumns.isMetadataColumn(name)}
    assert found == ICEBERG_COLUMNS
    ours = [name for name in NAMES if jvm.org.apache.iceberg.MetadataColumns.isMetadataColumn(name)]
    assert not ours
