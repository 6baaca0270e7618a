"""Sources other than files that executors read: rows, bad rows and positions are those of one process."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from runnel.model.work_place import WorkPlace
from runnel.names import TableName
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import Server

PLACES = ("process", "executors")


def make_project(place: str, root: Path, spark: "SparkSession", flow: str) -> Project:
    (root / place).mkdir()
    project = Project(root / place, spark)
    project.flow(flow, orders=None)
    return project


def read_state(project: Project, table: str) -> list[str | None]:
    """Return the position of a source after each commit that has one."""
    from runnel.lake.flow_state import ingest_positions
    from runnel.names import TableName

    with project.open() as lake:
        position = ingest_positions.read_processed_files(
            lake.store.db, lake.store.commit("main"), TableName.parse(table)
        )
        return [file.state for file in position.values()]


def look(project: Project, table: str) -> list[Any]:
    """Return what users see: rows, quarantined rows, the position."""
    quarantined_rows = [row[:3] for row in project.rows(f"quarantine.{table.replace('.', '_')}")]
    return [project.rows(table), quarantined_rows, read_state(project, table)]


def test_messages_of_kafka(
    spark: "SparkSession", kafka: "Server", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(f"executors-{tmp_path.name}", 3)
    kafka.put(topic, *[{"id": number} for number in range(50)], None, {"id": "x"}, partition=0)
    kafka.put(topic, *[{"id": number, "page": "a"} for number in range(30)], partition=2)
    origin = f'rn.kafka("{topic}", servers="{kafka.servers}", schema="id long, page string")'
    flow = f'rn.source("ods.clicks", {origin}, on_bad="quarantine")'
    projects = {place: make_project(place, tmp_path, spark, flow) for place in PLACES}
    facts: dict[str, list[Any]] = {place: [] for place in PLACES}
    for values in ([], [{"id": 100, "new": 1.5}]):
        kafka.put(topic, *values, partition=1)
        for place, project in projects.items():
            monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
            ran = project.run()
            assert ran.state == "succeeded", ran
            assert ran.steps[0].place == WorkPlace(place, f'spark.run_on is "{place}"')
            facts[place] += [ran.steps[0].rows, ran.steps[0].set_aside, *look(project, "ods.clicks")]
    assert facts["executors"] == facts["process"]
    assert facts["process"][:2] == [80, 2]


@pytest.mark.postgres
def test_tables_of_postgresql(
    spark: "SparkSession", database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "id, id::numeric(12,2) AS amount, timestamp '2026-01-01' + id * interval '1 hour' AS changed"
    flow = "\n".join(
        f'rn.source("ods.{name}", rn.jdbc("{database}", {options}), on_bad="quarantine")'
        for name, options in {
            "whole": 'table="whole", partitions=4',
            "keyed": 'query="select * from keyed", key="id", partitions=3',
            "marked": 'table="marked", key="id", watermark="changed", overlap="1 hour", partitions=2',
        }.items()
    )
    tables = ("whole", "keyed", "marked")
    projects = {place: make_project(place, tmp_path, spark, flow) for place in PLACES}
    facts: dict[str, list[Any]] = {place: [] for place in PLACES}
    with psycopg.connect(database, autocommit=True) as server:
        for table in tables:
            server.execute(f"CREATE TABLE {table} AS SELECT {columns} FROM generate_series(1, 5000) AS id")
            server.execute(f"UPDATE {table} SET amount = 'NaN' WHERE id = 7")
        for statement in (
            "SELECT 1",
            "UPDATE {table} SET amount = 0, changed = '2027-01-01' WHERE id % 100 = 0;"
            "DELETE FROM {table} WHERE id > 4000",
        ):
            for table in tables:
                server.execute(statement.format(table=table))
            for place, project in projects.items():
                monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
                ran = project.run()
                assert not ran.errors, ran.errors
                assert {step.place.name for step in ran.steps if step.place} <= {place}
                facts[place] += [[(str(step.table), step.rows, step.set_aside) for step in ran.steps]]
                facts[place] += [look(project, f"ods.{table}") for table in tables]
    assert facts["executors"] == facts["process"]
    assert [len(facts["process"][-number][0]) for number in (3, 2, 1)] == [3999] * 3


FRAME = """
@rn.source("ods.numbers"{options})
def numbers({parameters}spark):
    rows = spark.range({start}, {end}, 1, 3).selectExpr(
        "id", "cast(id as decimal(12,2)) / 4 as share", "timestamp_seconds(id) as at", "array(id) as many",
        "if(id % 2 = 0, null, named_struct('name', concat('n', id))) as who")
    return rows{state}
"""


def test_frames_of_spark_are_never_collected(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark.range(1)), "toArrow", pytest.fail)
    monkeypatch.setattr(type(spark.range(1)), "toPandas", pytest.fail)
    flows = {
        "everything": [FRAME.format(options="", parameters="", start=0, end=end, state="") for end in (20, 20, 21)],
        "keyed": [
            FRAME.format(
                options=', key="id"', parameters="state, ", start=start, end=start + 15, state=f", {{'n': {start}}}"
            )
            for start in (0, 0, 10)
        ],
        "empty": [FRAME.format(options=', schema="id long"', parameters="", start=0, end=0, state="")],
    }
    for name, texts in flows.items():
        facts: dict[str, list[Any]] = {}
        for place in PLACES:
            (tmp_path / name).mkdir(exist_ok=True)
            project = make_project(place, tmp_path / name, spark, texts[0])
            monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
            facts[place] = []
            for text in texts:
                project.flow(text, orders=None)
                assert project.plan().notes == ()  # only the rows tell where they are read
                ran = project.run()
                assert ran.state in ("succeeded", "nothing"), ran
                if name != "empty" and ran.steps[0].state == "succeeded":
                    assert ran.steps[0].place == WorkPlace(place, f'spark.run_on is "{place}"')
                with project.open() as lake:
                    content = lake.store.state()[TableName.parse("ods.numbers")].content
                rows, state = project.rows("ods.numbers"), read_state(project, "ods.numbers")
                facts[place] += [ran.state, content, rows, state]
            assert not list(project.root.rglob(".scratch/*"))
        assert facts["executors"] == facts["process"]
        if name == "everything":
            assert facts["process"][1] == facts["process"][5] != facts["process"][9]
