"""Files: replaced whole, and only the partitions that changed."""

import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from runnel.model.work_place import EXECUTORS, WorkPlace, WorkPlaceRules
from tests.connect.sinks.sink_project import Shop
from tests.connect.sinks.unit_deliveries import AttemptRunner, delivering_in_units
from tests.lake.pickling_runner import PicklingRunner
from tests.servers.s3 import Store

ROWS = [(1, "2026-01-01", 5.0), (2, "2026-01-02", 6.5)]
FILES = {
    "csv": ("orders.csv", "", "read_csv"),
    "packed csv": ("orders.csv.gz", "", "read_csv"),
    "jsonl": ("orders.jsonl", "", "read_json"),
    "json": ("orders.json", "", "read_json"),
    "packed jsonl": ("orders.jsonl.zst", "", "read_json"),
    "parquet": ("orders.parquet", "", "read_parquet"),
    "folder": ("orders/", ', format="parquet"', "read_parquet"),
}


def read(path: Path, reader: str) -> list[tuple[int, str, float]]:
    where = path / "*.parquet" if path.is_dir() else path
    found = duckdb.sql(f"select id, day, amount from {reader}('{where}') order by id").fetchall()
    return [(number, str(day), float(amount)) for number, day, amount in found]


@pytest.mark.parametrize(("name", "options", "reader"), FILES.values(), ids=FILES)
def test_a_file_holds_the_table(shop: Shop, name: str, options: str, reader: str) -> None:
    shop.sinks(f'rn.sink("ods.orders", rn.files("export/{name}"{options}))')
    assert shop.sent().rows == 2
    assert read(shop.root / "export" / name, reader) == ROWS
    assert shop.run().sinks == ()
    shop.day("a", (2, "2026-01-02", "6.50"))
    shop.run()
    assert read(shop.root / "export" / name, reader) == ROWS[1:]
    assert not [path for path in (shop.root / "export").rglob("*runnel*") if path.is_file()]


def test_csv_as_it_is_asked_for(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out.csv", delimiter=";", header=False))')
    shop.run()
    assert (shop.root / "out.csv").read_text() == "1;2026-01-01;5.00\n2;2026-01-02;6.50\n"


@pytest.mark.usefixtures("place")
def test_only_partitions_that_changed_are_replaced(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out/", format="csv", partition=["day"], compress="gz"))')
    shop.run()
    one, two, three = (shop.root / f"out/day=2026-01-0{number}/part-0.csv.gz" for number in (1, 2, 3))
    before = one.stat().st_ino
    shop.day("b", (3, "2026-01-03", "8.00"), (4, "2026-01-02", "1.00"))
    shop.run()
    assert one.stat().st_ino == before
    assert gzip.decompress(two.read_bytes()).decode().splitlines()[0] == "id,amount" and three.exists()
    shop.day("a", (1, "2026-01-01", "5.00"))
    shop.day("b", (4, "2026-01-02", "1.00"))
    shop.run()
    assert gzip.decompress(two.read_bytes()).decode() == "id,amount\n4,1.00\n" and not three.parent.exists()
    manifest = json.loads((shop.root / "out/_manifest.json").read_text())
    assert (manifest["rows"], list(manifest["files"])) == (2, [f"day=2026-01-0{day}/part-0.csv.gz" for day in (1, 2)])


@pytest.mark.usefixtures("place")
def test_a_kill_between_two_files_is_made_good(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out/", format="parquet", partition="day"))')
    shop.killed("sink.replacing:kill")
    assert not (shop.root / "out/_manifest.json").exists()
    shop.run()
    found = duckdb.sql(f"select count(*) from read_parquet('{shop.root}/out/*/*.parquet')").fetchall()
    assert found == [(2,)] and shop.run().sinks == ()
    assert {path.name for path in (shop.root / "out").iterdir()} == {
        "_manifest.json",
        "day=2026-01-01",
        "day=2026-01-02",
    }


def test_a_file_that_was_removed_comes_back(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out.csv"))')
    shop.run()
    (shop.root / "out.csv").unlink()
    assert shop.run().sinks == ()
    assert [sent.rows for sent in shop.deliver()] == [2] and (shop.root / "out.csv").exists()


@pytest.mark.usefixtures("place")
def test_a_partition_that_somebody_removed_and_that_has_no_rows_any_more_is_no_trouble(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out/", format="csv", partition="day"))')
    shop.run()
    shutil.rmtree(shop.root / "out" / "day=2026-01-02")
    shop.day("a", (1, "2026-01-01", "5.00"))
    assert shop.sent().state == "delivered"
    assert list(json.loads((shop.root / "out/_manifest.json").read_text())["files"]) == ["day=2026-01-01/part-0.csv"]


@pytest.mark.usefixtures("place")
def test_the_same_in_a_store(shop: Shop, s3: Store) -> None:
    said = "\n".join(f'"{key}" = "{value}"' for key, value in s3.storage.items())
    shop.write("runnel.toml", f'[project]\nname = "shop"\n[lake.storage]\n{said}\n')
    shop.sinks(
        f'rn.sink("ods.orders", rn.files("s3://{s3.bucket}/removed/", format="csv", partition="day"), retries=0)'
    )
    shop.run()
    assert s3.objects("removed/").keys() == {"_manifest.json", *(f"day=2026-01-0{n}/part-0.csv" for n in (1, 2))}
    s3.files.delete_dir(f"{s3.bucket}/removed/day=2026-01-02")
    shop.day("a", (1, "2026-01-01", "5.00"))
    assert shop.sent().state == "delivered"
    assert s3.objects("removed/").keys() == {"_manifest.json", "day=2026-01-01/part-0.csv"}


def test_a_folder_that_cannot_be_written_is_told(shop: Shop) -> None:
    shop.write("export", "a file in the way")
    shop.sinks('rn.sink("ods.orders", rn.files("export/orders.csv"))')
    sent = shop.sent()
    assert sent.error is not None and sent.error.code == "SINK_FILE" and "export" in sent.error.what
    (shop.root / "export").unlink()
    assert shop.sent().state == "delivered"


@pytest.mark.usefixtures("place")
def test_a_table_that_was_dropped_takes_its_file_along(shop: Shop) -> None:
    sinks = [f'rn.sink("ref.cities", rn.files({target}))' for target in ('"out.csv"', '"out/", format="csv"')]
    shop.sinks('rn.source("ref.cities", rn.manual())', *sinks)
    shop.write("cities.csv", "id,city\n1,Lima\n")
    with shop.open() as lake:
        loaded = lake.load("ref.cities", shop.root / "cities.csv")
    shop.deliver()
    assert (shop.root / "out.csv").read_text() == "id,city\n1,Lima\n"
    with shop.open() as lake:
        lake.revert(loaded.commit.id)
    shop.deliver()
    assert not (shop.root / "out.csv").exists()
    assert json.loads((shop.root / "out/_manifest.json").read_text())["rows"] == 0


@pytest.mark.usefixtures("place")
def test_a_source_whose_first_run_is_reverted_leaves_an_empty_file(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out.csv"))', 'rn.sink("ods.orders", rn.files("out/", format="csv"))')
    ran = shop.run()
    with shop.open() as lake:
        lake.revert(ran.commit or "")
    shop.deliver()
    assert (shop.root / "out.csv").read_text() == "id,day,amount\n"
    assert json.loads((shop.root / "out/_manifest.json").read_text())["rows"] == 0


def test_a_store_that_is_away_fails_no_run_and_tells_no_key(shop: Shop) -> None:
    storage = {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "someone", "s3.secret-access-key": "hunter22"}
    said = "\n".join(f'"{key}" = "{value}"' for key, value in {**storage, "s3.region": "x"}.items())
    shop.write("runnel.toml", f'[project]\nname = "shop"\n[lake.storage]\n{said}\n')
    shop.sinks('rn.sink("ods.orders", rn.files("s3://bucket/orders.csv"), retries=0)')
    ran = shop.run()
    (sent,) = ran.sinks
    assert ran.state == "succeeded" and sent.error is not None and sent.error.code == "SINK_UNREACHABLE"
    assert "s3://bucket/orders.csv" in sent.error.what and "flows/flow.py:" in str(sent.error)
    assert "hunter22" not in str(sent) + str(shop.states()) + Path(ran.log or "").read_text()


PARTITIONS = {"one file": "", "partitions": ', partition="day"'}


@pytest.mark.parametrize("options", PARTITIONS.values(), ids=PARTITIONS)
def test_a_unit_that_runs_twice_leaves_its_rows_once(shop: Shop, options: str) -> None:
    shop.day("b", (3, "2026-01-03", "8.00"), (4, "2026-01-02", "1.00"))
    shop.sinks(f'rn.sink("ods.orders", rn.files("out/", format="csv"{options}))')
    with delivering_in_units(AttemptRunner("twice, the last counts")):
        sent = shop.sent()
        assert (sent.rows, sent.place) == (4, WorkPlace(EXECUTORS, "a test"))
        shop.day("b", (3, "2026-01-03", "8.00"), (4, "2026-01-02", "2.00"))
        shop.run()
    found = duckdb.sql(f"select id, day, amount from read_csv('{shop.root}/out/**/*.csv') order by id").fetchall()
    assert [(number, str(day), float(amount)) for number, day, amount in found] == [
        *ROWS,
        (3, "2026-01-03", 8.0),
        (4, "2026-01-02", 2.0),
    ]
    manifest = json.loads((shop.root / "out/_manifest.json").read_text())
    written = {str(path.relative_to(shop.root / "out")) for path in (shop.root / "out").rglob("*.csv")}
    assert written == {*manifest["files"]} and not (shop.root / "out/.runnel").exists()


def test_a_folder_that_is_not_shared_is_written_by_this_process(shop: Shop) -> None:
    class ClusterRunner(PicklingRunner):
        def __call__(self, byte_count: int, local_paths: Iterable[str] = ()) -> PicklingRunner:
            self.reasons = [WorkPlaceRules("executors", has_cluster=True).choose(byte_count, local_paths).reason]
            return super().__call__(byte_count, local_paths)

    runner = ClusterRunner()
    shop.sinks('rn.sink("ods.orders", rn.files("out/", format="csv"))')
    with delivering_in_units(runner):
        shop.run()
    assert runner.reasons == [f"{shop.root}/out is on this machine only: no folder of spark.shared holds it"]
