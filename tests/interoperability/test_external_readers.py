"""The page "Reading the lake from elsewhere" is run as its readers would run it, and its warnings are true."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from bench.parts.cold_start import stock_java
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.query.engine import run_query
from runnel.spark.jvm.jars import LAKE_JARS, ensure_jars
from runnel.spark.jvm.java_home import find_java
from tests.interoperability.engines import Rows, ordered
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import branch

PAGE = (Path(__file__).parents[2] / "docs" / "reading-the-lake.md").read_text()
T = "ods.orders"

# Goes on where the page's program ends, with nothing but what a stock Spark has.
THEN = """
import json, sys
def rows(branch):
    return [list(row) for row in spark.sql(f"select * from {branch}.ods.orders order by id").collect()]
def refused(statement):
    try:
        spark.sql(statement).collect()
    except Exception as error:
        return str(error)[:1000]
table, later = "ods.orders", "timestamp'2999-01-01 00:00:00'"
print(json.dumps({
    "main": rows("main"),
    "dev": rows("dev"),
    "drop": refused("drop table dev.ods.orders purge"),
    "expire": refused(f"call main.system.expire_snapshots(table => '{table}', older_than => {later})"),
    "orphans": refused(f"call main.system.remove_orphan_files(table => '{table}')"),
    "made": refused("create table main.ods.made as select 1 as id"),
    "made purged": refused("drop table main.ods.made purge"),
    "runnel": "runnel" in sys.modules,
}))
spark.stop()
"""


def block(heading: str) -> str:
    """Return the program below a heading of the page."""
    return re.search(rf"^## {heading}\n.*?```python\n(.+?)```", PAGE, re.DOTALL | re.MULTILINE).group(1)


@pytest.fixture
def lake(store: Store) -> Store:
    """Fill main, and a branch that has more and less."""
    create(store, T, rows((1, "d1", 5), (2, "d2", 6)), by="day")
    branch(store, "dev")
    add(store, T, rows((3, "d3", 7)))
    add(store, T, rows((4, "d1", 8), (5, "d4", 9)), branch="dev")
    return store


def places(store: Store) -> dict[str, str]:
    return {"CATALOG": str(store.db.url.database), "WAREHOUSE": store.warehouse}


def shown(store: Store, at: str) -> Rows:
    return ordered(run_query(store, f"select * from {T}", at=at).table().to_pylist())


def files(store: Store) -> set[str]:
    return {str(path) for path in Path(store.warehouse).rglob("*") if path.is_file() and "ods/made" not in str(path)}


def test_pyiceberg_reads_what_runnel_shows(lake: Store) -> None:
    names: dict[str, Any] = places(lake)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block("PyIceberg"), "reading-the-lake.md", "exec"), names)
    assert printed.getvalue().split() == ["3", "4"]
    for name in ("main", "dev"):
        assert ordered(names[name].load_table(T).scan().to_arrow().to_pylist()) == shown(lake, name)


def test_stock_spark_reads_what_runnel_shows_and_removes_nothing(lake: Store, tmp_path: Path) -> None:
    java = find_java()
    jars = [jar for jar in ensure_jars(java) if "postgresql" not in jar.name]
    assert len(jars) == len(LAKE_JARS) - 1, "the Iceberg jar and the driver of SQLite"
    held, before = {name: shown(lake, name) for name in ("main", "dev")}, files(lake)
    bound = "".join(
        f"{name} = {value!r}\n" for name, value in {**places(lake), "JARS": ",".join(map(str, jars))}.items()
    )
    (tmp_path / "program.py").write_text(bound + block("Spark") + THEN)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "RUNNEL"))},
        "JAVA_HOME": str(stock_java(java.home, tmp_path)),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --driver-memory 1g pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *counts, last = done.stdout.strip().splitlines()
    found = json.loads(last)
    assert counts == ["3", "4"] and not found["runnel"]
    assert {name: [tuple(row) for row in found[name]] for name in held} == held
    for what in ("drop", "expire", "orphans", "made purged"):  # the last is a table that this Spark has created
        assert "GC is disabled" in found[what], (what, found[what])
    assert found["made"] is None
    assert files(lake) >= before, "nothing was removed"
    assert {name: shown(lake, name) for name in held} == held and fsck(lake, deep=True).is_clean


def test_purge_by_pyiceberg_does_the_harm_that_the_page_warns_of(lake: Store) -> None:
    assert "PyIceberg's `purge_table` does not" in PAGE
    SqlCatalog("dev", uri=f"sqlite:///{places(lake)['CATALOG']}", warehouse=lake.warehouse).purge_table(T)
    assert {finding.code for finding in fsck(lake).findings if finding.severity == "error"} == {"FSCK_FILE_MISSING"}


def test_dropping_by_pyiceberg_does_no_harm(lake: Store) -> None:
    before = shown(lake, "main")
    SqlCatalog("dev", uri=f"sqlite:///{places(lake)['CATALOG']}", warehouse=lake.warehouse).drop_table(T)
    assert shown(lake, "main") == before and lake.state("dev") == {}
    assert len(shown(lake, "dev~1")) == 4 and fsck(lake).is_clean
