"""Rows that take the place of others: in large files those are marked as deleted, small files are written again."""

from typing import TYPE_CHECKING

import pytest
from pyiceberg.manifest import DataFileContent

from runnel.connect.feed import row_displacer
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from tests.connect.jdbc.source_databases import Shop
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MARKED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", watermark="changed", key="id"{options}))'
ROWS = range(200)


@pytest.fixture
def large(small: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Return a shop with 200 rows in the lake, whose files all count as large."""
    monkeypatch.setattr(row_displacer, "LARGE_BYTES", 0)
    small.flow(MARKED.replace("{options}", ""))
    small.insert(*((number, f"n{number}", f"2026-01-01 {number // 60:02d}:{number % 60:02d}") for number in ROWS))
    small.run()
    return small


def change(shop: Shop, number: int, *ids: int) -> None:
    """Give rows another name, and take them in."""
    for one in ids:
        values = (f"changed {number}", f"2026-02-01 00:{number:02d}:00", one)
        shop.execute("UPDATE orders SET name = ?, changed = ? WHERE id = ?", values)
    shop.run()


def files(project: Project) -> tuple[list[FileEntry], list[FileEntry]]:
    """Return the files of data and those of deletes."""
    with project.open() as lake:
        store: Store = lake.store
        metadata = table_metadata.load_metadata(store, store.state()[TableName.parse("ods.orders")].location)
        found = list(read_entries(store, metadata))
    return [entry for entry in found if entry.is_data], [entry for entry in found if not entry.is_data]


def is_mirrored(shop: Shop) -> bool:
    def plain(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return sorted((row[0], row[1]) for row in rows)  # type: ignore[type-var]

    return plain(shop.rows()) == plain(shop.execute("SELECT * FROM orders").fetchall())


def test_few_rows_of_a_large_file_are_marked(large: Shop) -> None:
    (before,), _ = files(large.project)
    change(large, 1, 3, 50, 199)
    data, deletes = files(large.project)
    assert before.path in {entry.path for entry in data} and len(data) == 2
    assert [entry.file.content for entry in deletes] == [DataFileContent.POSITION_DELETES]
    assert deletes[0].file.record_count == 3
    assert is_mirrored(large)


def test_a_marked_row_changes_and_goes(large: Shop) -> None:
    change(large, 1, 3, 50)
    change(large, 2, 3)
    large.execute("DELETE FROM orders WHERE id IN (3, 4)")
    change(large, 3, 60)
    assert is_mirrored(large)


def test_a_file_that_loses_many_rows_is_written_again(large: Shop) -> None:
    (before,), _ = files(large.project)
    change(large, 1, *range(8))
    change(large, 2, *range(8, 16))
    assert before.path in {entry.path for entry in files(large.project)[0]}
    change(large, 3, *range(16, 24))
    assert before.path not in {entry.path for entry in files(large.project)[0]}
    assert is_mirrored(large)


def test_many_files_of_deletes_are_put_together(large: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_displacer, "MOST_MARKS", 3)
    for number in range(5):
        change(large, number, number)
        assert len(files(large.project)[1]) <= 3
        assert is_mirrored(large)
    data, deletes = (sum(entry.file.record_count for entry in found) for found in files(large.project))
    assert data - deletes == len(ROWS)


def test_each_partition_has_its_own(large: Shop) -> None:
    with large.project.open() as lake:
        lake.rewind("ods.orders", to="main~1")
    large.flow(MARKED.replace("{options}", "")[:-1] + ', partition="bucket(4, id)")')
    large.run()
    assert len(files(large.project)[0]) == 4
    change(large, 1, *ROWS[::20])
    data, deletes = files(large.project)
    assert {entry.file.partition[0] for entry in deletes} <= {entry.file.partition[0] for entry in data}
    assert 1 < len(deletes) <= 4 and is_mirrored(large)


def test_history_and_compaction_know_of_marked_rows(large: Shop) -> None:
    change(large, 1, 3, 50)
    with large.project.open() as lake:
        (found,) = lake.diff("main~1", "main").tables
        assert (found.rows_added, found.rows_removed) == (2, 2)
        sql = "SELECT count(*) FROM ods.orders WHERE name LIKE 'n%'"
        assert lake.query(sql, at="main~1").rows() == [(len(ROWS),)]
        compact(lake.store, TableName.parse("ods.orders"))
    assert not files(large.project)[1] and is_mirrored(large)
    change(large, 2, 3)
    assert files(large.project)[1] and is_mirrored(large)


def test_spark_reads_the_same(large: Shop, spark: "SparkSession") -> None:
    change(large, 1, 3, 50, 199)
    project = Project(large.project.root, spark)
    with project.open() as lake:
        ours, theirs = (
            lake.query("SELECT id, name FROM ods.orders ORDER BY id", engine=engine).rows()
            for engine in ("duckdb", "spark")
        )
    assert list(map(tuple, ours)) == list(map(tuple, theirs))
    assert [row[0] for row in ours if row[1].startswith("changed")] == [3, 50, 199]
