"""The DuckDB of a process: one for all work, and no work sees another's."""

import multiprocessing
from pathlib import Path

import duckdb
import pytest

from runnel.lake.scan import duckdb_connection
from runnel.lake.scan.duckdb_connection import connect_duckdb


def test_each_work_has_its_own_tables_and_settings() -> None:
    with connect_duckdb() as one, connect_duckdb() as two:
        one.execute("CREATE TEMP TABLE net AS SELECT 1 AS id")
        one.execute("CREATE TEMP VIEW came AS FROM net")
        one.execute("SET partitioned_write_max_open_files = 7")
        two.execute("CREATE TEMP TABLE net AS SELECT 2 AS id")
        assert one.execute("FROM came").fetchall() == [(1,)] and two.execute("FROM net").fetchall() == [(2,)]
        assert two.execute("SELECT current_setting('partitioned_write_max_open_files')").fetchall() != [(7,)]
    with connect_duckdb() as three, pytest.raises(duckdb.CatalogException, match="net"):
        three.execute("FROM net")


def test_times_are_in_utc() -> None:
    with connect_duckdb() as one, connect_duckdb() as two:
        one.execute("SET TimeZone = 'Asia/Tokyo'")
        for session in (two, connect_duckdb()):
            assert session.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_bad_rows_of_a_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id\n1\nx\n")
    (tmp_path / "two.csv").write_text("id\n1\nx\ny\n")
    with connect_duckdb() as one, connect_duckdb() as two:
        for session, name in ((one, "one"), (two, "two")):
            rows = f"read_csv('{tmp_path}/{name}.csv', columns = {{'id': 'INTEGER'}}, store_rejects = true)"
            assert session.execute(f"FROM {rows}").fetchall() == [(1,)]
        assert one.execute("SELECT count(*) FROM reject_errors").fetchall() == [(1,)]
        assert two.execute("SELECT count(*) FROM reject_errors").fetchall() == [(2,)]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"file.{ending}"
    for number in range(100, 140):  # of the same size, and within one tick of the clock of files
        with connect_duckdb() as session:
            session.execute(f"COPY (SELECT {number} AS id) TO '{path}'")
        with connect_duckdb() as session:
            assert session.execute(f"SELECT id FROM '{path}'").fetchall() == [(number,)]


def test_one_that_answers_nobody_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = duckdb_connection._DuckdbInstance()
    dead.close()
    monkeypatch.setattr(duckdb_connection, "_instance", dead)
    with connect_duckdb() as session:
        assert session.execute("SELECT 1").fetchall() == [(1,)]


def test_a_forked_process_has_its_own() -> None:
    with connect_duckdb() as session:
        session.execute("SELECT 1")
        process = multiprocessing.get_context("fork").Process(target=_ask)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert session.execute("SELECT 2").fetchall() == [(2,)]


def _ask() -> None:
    with connect_duckdb() as session:
        assert session.execute("SELECT count(*) FROM range(1000000)").fetchall() == [(1_000_000,)]
