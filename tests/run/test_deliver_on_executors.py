"""Sinks that executors deliver to: the target gets the rows that one process sends."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlalchemy as sa

from runnel.model.work_place import WorkPlace
from tests.connect.sinks.conftest import of_postgres
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.run.results.run_result import RunResult

SCHEMA = "id long, day date, amount decimal(12,2), tags array<string>, at timestamp"
FLOW = """
rn.source("ods.orders", rn.files("orders/*.jsonl", schema="{schema}"))
rn.sink("ods.orders", rn.jdbc("{url}", table="upserted", mode="upsert", key=["id"]), name="upserted")
rn.sink("ods.orders", rn.jdbc("{url}", table="overwritten", mode="overwrite"), name="overwritten")
rn.sink("ods.orders", rn.jdbc("{url}", table="appended", mode="append"), name="appended")
rn.sink("ods.orders", rn.files("days/", format="parquet", partition=["day"]), name="days")
rn.sink("ods.orders", rn.files("all/", format="parquet"), name="all")
"""
TABLES = ("upserted", "overwritten", "appended")


def write_orders(project: Project, number: int, *amounts: float) -> None:
    lines = [
        f'{{"id": {number * 10 + row}, "day": "2026-01-0{row + 1}", "amount": {amount}, "tags": ["a", null], '
        f'"at": "2026-01-02T03:04:05.123456Z"}}'
        for row, amount in enumerate(amounts)
    ]
    project.write(f"orders/{number}.jsonl", "\n".join(lines) + "\n")


def read_tables(url: str) -> dict[str, Any]:
    """Return the columns with their types and the rows of each table, and all names of tables."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        columns = "select column_name, data_type from information_schema.columns where table_name = '{}' order by 1"
        facts: dict[str, Any] = {
            table: (
                connection.execute(sa.text(columns.format(table))).all(),
                sorted(map(repr, connection.execute(sa.text(f"select * from {table}")))),
            )
            for table in TABLES
        }
        names = sa.text("select tablename from pg_tables where schemaname = 'public' order by 1")
        facts["tables"] = list(connection.execute(names).scalars())
    engine.dispose()
    return facts


def read_folders(root: Path) -> dict[str, Any]:
    """Return the rows of each folder, and the files of the one whose partitions are files."""
    days = json.loads((root / "days/_manifest.json").read_text())
    facts: dict[str, Any] = {"files": [*days["files"]], "rows": days["rows"]}
    for folder in ("days", "all"):
        rows = duckdb.sql(f"select * from read_parquet('{root}/{folder}/**/*.parquet')").fetchall()
        facts[folder] = sorted(map(repr, rows))
    return facts


def summarize(ran: "RunResult") -> list[tuple[str, str, int]]:
    return [(sent.sink, sent.state, sent.rows) for sent in ran.sinks]


@pytest.mark.postgres
def test_executors_deliver_what_one_process_delivers(
    spark: "SparkSession", postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {}
    for place in ("process", "executors"):
        (tmp_path / place).mkdir()
        project, url = Project(tmp_path / place, spark), of_postgres(postgres)
        project.flow(FLOW.format(url=url, schema=SCHEMA), orders=None)
        for number in range(4):
            write_orders(project, number, 1.5, 2.5, 3.5)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", place)
        first = project.run()
        assert {sent.place for sent in first.sinks} == {WorkPlace(place, f'spark.run_on is "{place}"')}, first.sinks
        at_first = (read_tables(url), read_folders(project.root))
        write_orders(project, 1, 1.5, 7.0)  # a row stays, one changes, one is removed
        (project.root / "orders/3.jsonl").unlink()
        write_orders(project, 5, 9.0)
        second = project.run()
        facts[place] = (at_first, read_tables(url), read_folders(project.root), summarize(first), summarize(second))
    assert facts["executors"] == facts["process"]
    assert facts["process"][0][0]["tables"] == ["appended", "overwritten", "runnel_deliveries", "upserted"]
