"""Tables of many small slices are parted in buckets: only the buckets of changed slices are written again."""

import pytest

from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.names import TableName
from tests.run.equivalence.mutations import thresholds
from tests.run.project import Project, did
from tests.run.run_inspection import counted, step_of

DAYS = """
@rn.task("dws.day", by="day")
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))
"""
PAIRS = """
@rn.task("dws.pair", by=["day", "kind"], by_input={"orders": "day, amount % 3"})
def pair(orders):
    return orders.groupBy("day", F.expr("amount % 3").alias("kind")).agg(F.count("*").alias("n"))
"""


def files(project: Project, table: str) -> dict[str, int | None]:
    """Return the files of a table with the bucket of each."""
    with project.open() as lake:
        state = lake.store.state()[TableName.parse(table)]
        return {
            entry.path: entry.file.partition[0]
            for entry in read_entries(lake.store, load_metadata(lake.store, state.location))
        }


@pytest.fixture
def shop(project: Project) -> Project:
    """Orders of thirty days in one file, run once, in buckets."""
    project.flow(DAYS + PAIRS)
    project.orders("all", *((number, f"2026-01-{number % 30 + 1:02}", number % 7) for number in range(120)))
    with thresholds(layout="buckets"):
        project.run()
    return project


def check_whole(project: Project) -> None:
    before = {table: project.rows(table) for table in ("dws.day", "dws.pair")}
    assert set(did(project.run(full_refresh=True)).values()) <= {"full", "ingest", "skip"}
    assert {table: project.rows(table) for table in ("dws.day", "dws.pair")} == before


def test_only_the_bucket_of_a_changed_slice_is_written(shop: Project) -> None:
    before = files(shop, "dws.day")
    assert len(set(before.values())) > 8
    shop.orders("late", (900, "2026-01-02", 1))
    ran = shop.run()
    assert counted(ran, "dws.day") == "1 of 30" and step_of(ran, "dws.day").rows == 1
    after = files(shop, "dws.day")
    gone, came = before.keys() - after.keys(), after.keys() - before.keys()
    assert {before[path] for path in gone} == {after[path] for path in came} and len(came) == 1
    check_whole(shop)


def test_slices_come_vanish_and_move_between_buckets(shop: Project) -> None:
    shop.orders("new", (900, "2026-03-01", 1), (901, "2031-05-07", 2))  # in buckets with and without rows
    assert counted(shop.run(), "dws.day") == "2 of 30"
    shop.orders("new", (901, "2026-03-01", 2))
    assert counted(shop.run(), "dws.day") == "2 of 32"
    shop.orders("new", (902, "", 5))
    ran = shop.run()
    assert counted(ran, "dws.day") == "2 of 31" and (None, 5, 1) in shop.rows("dws.day")
    assert counted(ran, "dws.pair").startswith("2 of ")
    shop.orders("new", (902, "", 5), (903, "", 6))
    assert counted(shop.run(), "dws.day") == "1 of 31" and (None, 11, 2) in shop.rows("dws.day")
    check_whole(shop)


def test_the_same_rows_again_are_the_same_table(shop: Project) -> None:
    with shop.open() as lake:
        before = lake.store.state()[TableName.parse("dws.pair")]
    shop.orders("late", (900, "2026-01-02", 6))
    shop.run()
    with shop.open() as lake:
        after = lake.store.state()[TableName.parse("dws.pair")]
    assert after.content != before.content
    shop.orders("late")
    shop.run()
    with shop.open() as lake:
        assert lake.store.state()[TableName.parse("dws.pair")].content == before.content
    check_whole(shop)
