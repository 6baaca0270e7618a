"""Sources of files that executors read: rows, types, bad rows and positions are those of one process."""

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.ingest.part_writer import LEAST_SHARED
from runnel.errors import Mistake
from runnel.lake.iceberg.data_file_owners import is_shared
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import list_runs
from runnel.lake.upkeep.compact.compact import compact
from runnel.model.work_place import WorkPlace
from runnel.names import TableName
from runnel.project.work_places import create_work_context
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.cluster
QUARANTINED = ("csv", "json", "small")
FLOW = """
rn.source("ods.csv", rn.files("csv/*.csv", schema="id long, day date, amount decimal(12,2)"), on_bad="quarantine")
rn.source("ods.packed", rn.files("packed/*.csv.gz", schema="infer"))
rn.source("ods.json", rn.files("json/*.jsonl", format="jsonl", schema="id long"), on_bad="quarantine")
rn.source("ods.parquet", rn.files("parquet/*.parquet", schema="id long"), on_bad="drop")
rn.source("ods.xml", rn.files("xml/*.xml", row_tag="row", schema="id long, v double"))
rn.source("ods.text", rn.files("text/*.log", format="text", schema="value string"))
rn.source("ods.small", rn.files("small/*.csv", schema="id long", removed="delete"), on_bad="quarantine")
"""
SMALL = TableName("ods", "small")
TABLES = ("csv", "packed", "json", "parquet", "xml", "text", "small", *(f"quarantine.{name}" for name in QUARANTINED))


def write_files(root: Path) -> None:
    for folder in ("csv", "packed", "json", "parquet", "xml", "text", "small"):
        (root / folder).mkdir()
    for number in range(2 * LEAST_SHARED):
        (root / "small" / f"{number}.csv").write_text(f"id\n{number}\n{'x' if number % 9 == 0 else number}\n")
    for number in range(5):
        rows = [f"{number * 10 + row},2026-01-0{row + 1},{row}.5" for row in range(4)]
        bad = {1: ["x,2026-01-01,1", "5,2026-01-01"], 3: ['7,"2026-13-01",1']}.get(number, [])
        extra = ",note" if number == 2 else ""
        rows = [row + (",late" if extra else "") for row in [*rows, *bad]]
        (root / "csv" / f"{number}.csv").write_text("\n".join([f"id,day,amount{extra}", *rows]) + "\n")
        values = "3.5" if number == 4 else "3"  # the last file decides the type of a guessed column
        packed = f"id,v,w\n{number},{values},\n".encode()
        (root / "packed" / f"{number}.csv.gz").write_bytes(gzip.compress(packed))
        (root / "xml" / f"{number}.xml").write_text(f"<rows><row><id>{number}</id><v>1.5</v></row></rows>")
        (root / "text" / f"{number}.log").write_text(f"line {number}\nother\n")
        column = pa.array([number], pa.int32() if number < 3 else pa.int64())
        pq.write_table(pa.table({"id": column, "v": pa.array([float(number)])}), root / "parquet" / f"{number}.parquet")
    documents: list[list[Any]] = [
        [{"id": 1, "a": {}, "n": 1}, {"id": 2, "a": {}}],
        [{"id": 3, "a": {"b": 1}, "n": 1.5, "mixed": "text"}, "no object"],
        [{"id": 4, "a": {"b": 2, "c": [1]}, "n": None, "mixed": {"x": 1}, "tags": ["p"]}],
        [{"id": "five"}, {"id": 6, "tags": []}],
    ]
    for number, lines in enumerate(documents):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (root / "json" / f"{number}.jsonl").write_text(text + ("{broken\n" if number == 2 else ""))


def look(project: Project, names: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """Return what users see of the tables: columns with types, rows, quarantined rows."""
    facts: dict[str, Any] = {}
    with project.open() as lake:
        for name in names:
            table = f"quarantine.ods_{name.split('.')[1]}" if name.startswith("quarantine") else f"ods.{name}"
            columns = "raw, reason, file" if name.startswith("quarantine") else "*"
            rows = lake.query(f"select {columns} from {table}", engine="duckdb").table()
            facts[table] = (str(rows.schema), sorted(map(repr, rows.to_pylist())))
    return facts


def compact_small_files(project: Project, spark: "SparkSession") -> int:
    """Compact a table whose source files share data files, and return how many of them have rows in the new ones."""
    small = project.root / "small"
    for number in range(3):  # read one by one, so that there is something to compact
        (small / f"new{number}.csv").write_text(f"id\n{1000 + number}\n")
    project.run()
    with project.open() as lake:
        work = create_work_context(lake.settings, lambda: spark, "compact")
        [done] = compact(lake.store, SMALL, work=work)
        assert done.commit, done
        entries = read_entries(lake.store, load_metadata(lake.store, lake.store.state()[SMALL].location))
        return len({run.owner for entry in entries if is_shared(entry.path) for run in list_runs(lake.store, entry)})


def test_executors_read_what_one_process_reads(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {}
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project = Project(tmp_path / place, spark)
        project.flow(FLOW, orders=None)
        write_files(project.root)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        plan = project.plan("ods.csv")
        where = {"process": "in this process", "executors": "on executors"}[place]
        assert plan.notes == (f'ods.csv is read {where}: spark.run_on is "{place}"',)
        assert plan.jvm == (place == "executors")
        first = project.run()
        assert first.state == "succeeded", first
        assert {step.place for step in first.steps} == {WorkPlace(place, f'spark.run_on is "{place}"')}
        assert compact_small_files(project, spark) > LEAST_SHARED
        (project.root / "csv" / "1.csv").write_text("id,day,amount\n1,2026-02-01,9\n")
        (project.root / "csv" / "3.csv").unlink()
        (project.root / "small" / "3.csv").write_text("id\n300\n")
        (project.root / "small" / "9.csv").unlink()
        second = project.run()
        outcomes = [[(str(step.table), step.rows, step.set_aside) for step in ran.steps] for ran in (first, second)]
        facts[place] = (look(project), outcomes, project.run().state)
    assert facts["executors"] == facts["process"]
    assert facts["process"][2] == "nothing"


def test_executors_release_what_one_process_releases(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        'rn.source("ods.csv", rn.files("csv/*.csv", schema="id %s, v string", removed="delete"), on_bad="quarantine")'
    )
    facts = {}
    for place in ("process", "executors"):
        (tmp_path / place / "csv").mkdir(parents=True)
        project = Project(tmp_path / place, spark)
        project.flow(text % "int", orders=None)
        for number in range(2 * LEAST_SHARED):
            (project.root / "csv" / f"{number}.csv").write_text(f"v,id\na,{number}\nb,{number}000000000\nc,x\n")
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        project.run()
        project.flow(text % "long", orders=None)
        with project.open() as lake:
            done = lake.release("ods.csv")
        assert (done.accepted, done.bad) == (2 * LEAST_SHARED - 3, 2 * LEAST_SHARED)
        (project.root / "csv" / "7.csv").unlink()
        project.run()
        facts[place] = look(project, ("csv", "quarantine.csv"))
    assert facts["executors"] == facts["process"]
    assert len(facts["process"]["quarantine.ods_csv"][1]) == 2 * LEAST_SHARED - 1
    ids = [row for row in facts["process"]["ods.csv"][1] if "'id': 8000000000," in row or "'id': 7000000000," in row]
    assert ids == ["{'id': 8000000000, 'v': 'b'}"]  # the released row of the removed file went with it


LARGE_FLOW = """
rn.source("ods.csv", rn.files("csv/*.csv", schema="id long, v string", multiline=False), on_bad="quarantine")
rn.source("ods.json", rn.files("json/*.jsonl", schema="id long"), on_bad="quarantine")
rn.source("ods.parquet", rn.files("parquet/*.parquet", schema="id long"), on_bad="drop")
"""


def write_large_files(root: Path) -> None:
    """Write files of some KB each, with bad rows near their ends."""
    for folder in ("csv", "json", "parquet"):
        (root / folder).mkdir()
    rows = [f"{number},value {number}" for number in range(300)]
    (root / "csv" / "a.csv").write_text("\n".join(["id,v", *rows, "x,late", "7", "301,end"]))
    lines = [f'{{"id": {number}}}' for number in range(400)]
    (root / "json" / "a.jsonl").write_text("\n".join([*lines, "{broken", '{"id": "x", "more": 1}']))
    ids = [str(number) for number in range(900)]
    pq.write_table(pa.table({"id": [*ids, "x"]}), root / "parquet" / "a.parquet", row_group_size=100)


def test_executors_read_splits_of_large_files(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL__SPARK__SPLIT_SIZE", "2 KiB")
    facts, data_files = {}, {}
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project = Project(tmp_path / place, spark)
        project.flow(LARGE_FLOW, orders=None)
        write_large_files(project.root)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        ran = project.run()
        assert ran.state == "succeeded", ran
        outcomes = [(str(step.table), step.rows, step.set_aside) for step in ran.steps]
        facts[place] = (look(project, ("csv", "json", "parquet", "quarantine.csv", "quarantine.json")), outcomes)
        data_files[place] = sum(1 for _ in project.root.glob(".runnel/warehouse/ods/**/*.parquet"))
        assert project.run().state == "nothing"
    assert facts["executors"] == facts["process"]
    assert any("csv/a.csv, line 302, column `id`" in row for row in facts["process"][0]["quarantine.ods_csv"][1])
    assert data_files["process"] == 3
    assert data_files["executors"] >= 6  # each split has its own


def test_bad_rows_stop_a_run_with_the_same_message(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = {}
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project = Project(tmp_path / place, spark)
        project.flow('rn.source("ods.csv", rn.files("csv/*.csv", schema="id long"))', orders=None)
        (project.root / "csv").mkdir()
        for number in range(4):
            (project.root / "csv" / f"{number}.csv").write_text(f"id\n{number}\nx{number}\n")
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        failed = project.run()
        messages[place] = str(failed.steps[0].error)
    assert messages["executors"] == messages["process"]
    assert "csv/0.csv, line 3, column `id`: 'x0': not a long" in messages["process"]


def test_executors_load_by_hand_what_one_process_loads(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {}
    monkeypatch.setenv("RUNNEL__SPARK__SPLIT_SIZE", "2 KiB")
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project = Project(tmp_path / place, spark)
        write_large_files(project.root)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        with project.open() as lake:
            csv = lake.load("ods.csv", project.root / "csv" / "a.csv", schema="id long, v string", on_bad="drop")
            json_lines = lake.load("ods.json", project.root / "json" / "a.jsonl", on_bad="drop")
            parquet = lake.load("ods.parquet", project.root / "parquet" / "a.parquet")
            with pytest.raises(Mistake) as refused:
                lake.load("ods.csv", project.root / "csv" / "a.csv")
        results = (csv, json_lines, parquet)
        assert {result.place for result in results} == {WorkPlace(place, f'spark.run_on is "{place}"')}
        rows = [project.rows(f"ods.{name}") for name in ("csv", "json", "parquet")]
        counts = [(result.rows, result.dropped, result.bytes, result.new_columns) for result in results]
        facts[place] = (rows, counts, str(refused.value).replace(str(project.root), ""))
    assert facts["executors"] == facts["process"]
    assert facts["process"][1][0][:2] == (301, 2)
