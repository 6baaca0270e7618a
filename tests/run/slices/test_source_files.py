"""Slices and files: files of a source come, change, go and are renamed; tables of files; tables parted into files."""

import datetime as dt
from typing import Any

import pytest

from runnel.lake.files.remove import remove_files
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.names import TableName
from runnel.run.slices import partition_layout
from tests.run.project import Project, did, reasons
from tests.run.run_inspection import counted, numbers, oracle, step_of

pytestmark = pytest.mark.cluster

JAN = [dt.date(2026, 1, day) for day in range(1, 32)]
DAYS = """
@rn.task("dws.day", by="day"OPTIONS)
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))
"""
LAW = "select day, sum(amount)::long, count(*) from orders group by day"


def orders(project: Project, days: int = 10) -> None:
    for number, day in enumerate(JAN[:days]):
        project.orders(f"{day}", (number, str(day), 5), (number + 100, str(day), 7))


def check(project: Project, table: str = "dws.day", sql: str = LAW) -> None:
    assert project.rows(table) == oracle(project, sql, "ods.orders")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Project:
    project = Project(tmp_path_factory.mktemp("files"), spark)
    project.flow(DAYS.replace("OPTIONS", ""), orders=', removed="delete"')
    orders(project)
    project.run()
    return project


def move(project: Project, name: str, to: str) -> None:
    (project.root / f"data/orders/{name}.csv").rename(project.root / f"data/orders/{to}.csv")


CHANGES = {
    # what happens to a file: (the change, slices, rows written)
    "it comes": (lambda p: p.orders("new", (900, "2026-01-20", 1), (901, "2026-01-03", 1)), 2, 2),
    "it changes": (lambda p: p.orders("2026-01-02", (1, "2026-01-02", 5), (101, "2026-01-02", 8)), 1, 1),
    "it changes time and again": (
        lambda p: (
            p.orders("2026-01-07", (6, "2026-01-07", 1)),
            p.run(),  # now the slice has a file of its own
            p.orders("2026-01-07", (6, "2026-01-07", 2)),
        ),
        1,
        1,
    ),
    "it goes, and its slice with it": (lambda p: (p.root / "data/orders/2026-01-04.csv").unlink(), 1, 0),
    "its row moves to another slice": (lambda p: p.orders("2026-01-05", (4, "2026-01-06", 5)), 2, 1),
    "it is renamed": (lambda p: move(p, "2026-01-08", "renamed"), 0, 0),
    "it is rewritten with its rows in another order": (
        lambda p: p.orders("2026-01-09", (108, "2026-01-09", 7), (8, "2026-01-09", 5)),
        0,
        0,
    ),
}


@pytest.mark.parametrize(("change", "slices", "rows"), CHANGES.values(), ids=CHANGES)
def test_a_file_of_the_source(shop: Project, change: Any, slices: int, rows: int) -> None:
    change(shop)
    done = shop.run()
    check(shop)
    if not slices:
        assert "dws.day" not in did(done)
        return
    assert counted(done, "dws.day").split()[0] == str(slices)
    assert step_of(done, "dws.day").rows == rows


IMAGES = """
rn.source("ods.images", rn.manual())


@rn.task("dwd.pixels", by="path", inputs={"images": "ods.images"})
def pixels(images):
    return images.selectExpr("path", "size", "length(content) AS n", "sha256").distinct()


@rn.task("dwd.parts", by="file", by_input={"images": "path"}, inputs={"images": "ods.images"})
def parts(images):
    return images.selectExpr("path AS file", "explode(split(decode(content, 'UTF-8'), ' ')) AS part").distinct()


@rn.task("dws.folder", by="folder", by_input={"pixels": "split_part(path, '/', 1)"})
def folder(pixels):
    return pixels.groupBy(F.expr("split_part(path, '/', 1)").alias("folder")).agg(F.count("*").alias("n"))
"""


def test_one_of_a_thousand_images(project: Project) -> None:
    project.flow(IMAGES, orders=None)
    folder = project.root / "images"
    for number in range(1000):
        target = folder / f"{number % 20:02}" / f"{number}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(f"image {number}".encode())
    with project.open() as lake:
        lake.put("ods.images", folder)
    project.run()
    (folder / "03/3.png").write_bytes(b"another image 3")
    (folder / "04/new.png").write_bytes(b"image new")
    with project.open() as lake:
        lake.put("ods.images", folder / "03/3.png", prefix="03")
        lake.put("ods.images", folder / "04/new.png", prefix="04")
        remove_files(lake.store, TableName.parse("ods.images"), ["05/5.png"])
    done = project.run()
    assert numbers(done) == {"dwd.pixels": 2, "dwd.parts": 5, "dws.folder": 3}
    assert [counted(done, table) for table in ("dwd.pixels", "dwd.parts")] == ["3 of 1,000"] * 2
    law = "select path, size, octet_length(content), sha256 from images"
    assert project.rows("dwd.pixels") == oracle(project, law, "ods.images")
    parts = "select distinct path, unnest(string_split(decode(content), ' ')) from images"
    assert project.rows("dwd.parts") == oracle(project, parts, "ods.images")
    assert project.rows("dws.folder") == oracle(
        project, "select split_part(path, '/', 1), count(*) from images group by 1", "ods.images"
    )
    assert not [row for row in project.rows("dwd.parts") if row[0] == "05/5.png"]
    with project.open() as lake:
        lake.put("ods.images", folder / "03/3.png", prefix="03")  # the same again
    assert did(project.run()) == {}


CLICKS = """
rn.source("ods.clicks", rn.files("data/clicks/*.csv", schema="id long, ts timestamp"))


@rn.task("dws.day", by="day", by_input={"clicks": "to_date(ts)"})
def day(clicks):
    return clicks.groupBy(F.to_date("ts").alias("day")).agg(F.count("*").alias("n"), F.max("ts").alias("last"))
"""


def test_an_expression_names_the_slices_of_an_input(project: Project) -> None:
    project.flow(CLICKS, orders=None)

    def clicks(name: str, *rows: tuple[int, str]) -> None:
        project.write(f"data/clicks/{name}.csv", "id,ts\n" + "".join(f"{number},{ts}\n" for number, ts in rows))

    clicks("a", *((day, f"{JAN[day]}T{hour}Z") for day in range(12) for hour in ("00:00:00", "23:59:59.999999")))
    clicks("b", (1, "2026-01-05T12:00:00Z"), (2, ""))
    project.run()
    clicks("b", (1, "2026-01-06T00:00:00Z"), (2, ""), (3, ""))
    done = project.run()
    assert (counted(done, "dws.day"), step_of(done, "dws.day").rows) == ("3 of 13", 3)
    law = "select (ts at time zone 'UTC')::date, count(*), max(ts) from clicks group by 1"
    assert project.rows("dws.day") == oracle(project, law, "ods.clicks")


PARTED = {
    # how the table is parted: (the option, the file of a slice that did not change stays)
    "by the same column": (', partition="day"', True),
    "by another column": (', partition="n"', False),
    "by a bucket": (', partition="bucket(4, day)"', False),
    "by months": (', partition="months(day)"', False),
    "by the same column and another": (', partition=["n", "day"]', True),
}


@pytest.mark.parametrize(("option", "stays"), PARTED.values(), ids=PARTED)
def test_a_table_that_is_parted(project: Project, option: str, stays: bool) -> None:
    project.flow(DAYS.replace("OPTIONS", option))
    orders(project)
    project.write("data/orders/null.csv", "id,day,amount\n500,,1\n")
    project.run()
    before = data_files(project, "dws.day")
    project.orders("2026-01-02", (1, "2026-01-02", 5))
    project.write("data/orders/null.csv", "id,day,amount\n500,,2\n")
    done = project.run()
    assert (counted(done, "dws.day"), step_of(done, "dws.day").rows) == ("2 of 11", 2)
    check(project)
    after = data_files(project, "dws.day")
    assert len(after - before) <= 2 or not stays
    assert (len(before - after) == 2) if stays else before - after


def data_files(project: Project, table: str) -> set[str]:
    with project.open() as lake:
        location = lake.store.state("main")[TableName.parse(table)].location
        return {entry.path for entry in read_entries(lake.store, load_metadata(lake.store, location))}


def test_a_table_of_large_slices_is_parted_by_them(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_layout, "_LEAST_BYTES", 1)
    project.flow(
        DAYS.replace("OPTIONS", "")
        + """
        @rn.task("ads.day", by="day", inputs={"days": "dws.day"})
        def top(days):
            return days.groupBy("day").agg(F.max("revenue").alias("revenue"))
        """.replace("\n        ", "\n")
    )
    orders(project)
    project.run()
    assert [len(data_files(project, table)) for table in ("dws.day", "ads.day")] == [10, 10]
    before = data_files(project, "dws.day")
    project.orders("2026-01-02", (1, "2026-01-12", 5))  # a slice goes, another comes
    project.orders("2026-01-03", (2, "2026-01-03", 6))
    project.run("ods.orders dws.day")
    check(project)
    after = data_files(project, "dws.day")
    assert (len(before - after), len(after - before)) == (2, 2)
    assert reasons(project.plan())["ads.day"] == (  # the files tell, though a task made them
        "slices: 3 of 10, dws.day lost 1 row on 2026-01-02, changed on 2026-01-03 and gained 1 on 2026-01-12"
    )
    assert numbers(project.run()) == {"ads.day": 2}
    check(project, "ads.day", "select day, sum(amount)::long from orders group by day")


CHECKED = """
CHECKS = [rn.check("amount >= 0", on_fail="quarantine"), rn.check("id < 500", on_fail="drop")]

@rn.task("dwd.good", by="k", checks=CHECKS)
def good(orders):
    return orders.selectExpr("id", "day", "amount", "KEY AS k").distinct()
"""
KEYS = {
    "a date": "day",
    "a number, of which one is NaN": "double(replace(date_format(day, 'dd'), '01', 'NaN'))",
    "a time": "timestamp(day)",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_rows_set_aside_are_those_of_the_slices_as_they_are(project: Project, key: str) -> None:
    text = CHECKED.replace("KEY", key)
    project.flow(text.replace('by="k"', f'by="k", by_input={{"orders": "{key}"}}'))
    for number, day in enumerate(JAN[:8]):
        project.orders(f"{day}", (number, str(day), 1), (number + 100, str(day), -1), (number + 500, str(day), 1))
    assert step_of(project.run(), "dwd.good").set_aside == 16
    project.orders("2026-01-01", (0, "2026-01-01", 1), (100, "2026-01-01", 3), (110, "2026-01-01", -3))
    project.orders("2026-01-03", (502, "2026-01-03", 1))
    step = step_of(project.run(), "dwd.good")
    assert (step.action, step.rows, step.set_aside) == ("slices", 2, 2)
    with project.open() as lake:
        raw = [row[0] for row in lake.query("select raw from quarantine.dwd_good").rows()]
    assert sorted(int(text.split('"id":')[1].split(",")[0]) for text in raw) == [101, 103, 104, 105, 106, 107, 110]
    good = oracle(project, "select id, day, amount from orders where amount >= 0 and id < 500", "ods.orders")
    assert [row[:3] for row in project.rows("dwd.good")] == good


def test_a_key_that_must_be_unique_beyond_its_slice(project: Project) -> None:
    project.flow("""
    @rn.task("dws.last", by="day", key="id")
    def last(orders):
        return orders.select("id", "day", "amount").distinct()
    """)
    for number, day in enumerate(JAN[:6]):
        project.orders(f"{day}", (number, str(day), 5))
    project.run()
    before, commits = project.rows("dws.last"), project.commits()
    project.orders("again", (1, "2026-01-04", 6))
    done = project.run()
    assert (done.state, done.commit, project.commits()) == ("failed", None, commits)
    assert "CHECK_FAILED" in str(done.errors[0]) and "id 1 twice" in str(done.errors[0])
    assert project.rows("dws.last") == before
    project.orders("2026-01-02", (50, "2026-01-02", 5))  # now it has moved from one slice to the other
    project.run("ods.orders")
    assert reasons(project.plan("dws.last"))["dws.last"].endswith(
        "; reads the key id of 6 rows to check that it is unique"
    )
    done = project.run()
    assert counted(done, "dws.last") == "2 of 6"
    check(project, "dws.last", "select id, day, amount from orders")


def test_a_reference_that_has_the_key_is_read_whole(project: Project) -> None:
    project.flow("""
    rn.source("ods.holidays", rn.files("data/holidays/*.csv", schema="day date, name string"))

    @rn.task("dws.after", by="day", reference="holidays")
    def after(orders, holidays):
        eves = holidays.select(F.date_add("day", 1).alias("day"), "name")
        return orders.groupBy("day").agg(F.sum("amount").alias("revenue")).join(eves, "day", "left")
    """)
    project.write("data/holidays/a.csv", "day,name\n2026-01-01,new year\n2026-01-05,twelfth night\n")
    orders(project)
    project.run()
    project.write("data/holidays/a.csv", "day,name\n2026-01-01,New Year\n2026-01-05,Twelfth Night\n")
    assert did(project.run()) == {"ods.holidays": "ingest"}
    project.orders("late", (900, "2026-01-02", 1))
    assert numbers(project.run()) == {"dws.after": 1}
    rows = {row[0]: row[1:] for row in project.rows("dws.after")}
    assert (rows[JAN[1]], rows[JAN[5]], rows[JAN[0]]) == ((13, "New Year"), (12, "twelfth night"), (12, None))
