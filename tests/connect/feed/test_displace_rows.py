"""Rows that are removed by their keys: the same in this process and in units, marked or rewritten."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.feed import row_displacer
from runnel.connect.feed.upsert import KeyPaths, displace_rows
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.scan import row_pieces
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.work_runner import ChooseRunner, run_in_process
from runnel.names import TableName
from tests.lake.factories import iceberg_schema
from tests.lake.pickling_runner import PicklingRunner

SCHEMA = pa.schema([("region", pa.string()), ("id", pa.float64()), ("name", pa.string())])
NARROW = pa.schema([("region", pa.string()), ("id", pa.float32()), ("name", pa.string())])
KEY = ("region", "id")
Row = tuple[str | None, float | None, str]


def table_of(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema)


class Upserting:
    """A table whose rows are replaced by key, round by round."""

    def __init__(self, store: Store, name: str, choose_runner: ChooseRunner) -> None:
        self.store = store
        self.choose_runner = choose_runner
        self.location, _ = table_metadata.create_table(store, TableName("ods", name), iceberg_schema(SCHEMA))
        self.delete_files = 0

    def upsert(self, *batches: list[Row], key_paths: KeyPaths = KeyPaths()) -> None:  # noqa: B008
        metadata = table_metadata.load_metadata(self.store, self.location)
        added = [
            file
            for rows in batches
            for file in parquet_writer.write_rows(self.store, metadata, table_of(rows).to_batches())
        ]
        displaced = displace_rows(
            self.store, self.location, metadata, added, KEY, key_paths=key_paths, choose_runner=self.choose_runner
        )
        edit = snapshots.VersionEdit([*added, *displaced.added], displaced.removed)
        self.location = snapshots.stage_version(self.store, self.location, edit)

    def read(self) -> list[str]:
        metadata = table_metadata.load_metadata(self.store, self.location)
        self.delete_files = sum(not entry.is_data for entry in read_entries(self.store, metadata))
        with connect_duckdb() as con:
            return sorted(map(repr, con.execute(rows_sql(self.store, metadata)).fetchall()))

    def list_scratch_files(self) -> list[Path]:
        folder = Path(normalize_location(table_metadata.load_metadata(self.store, self.location).location))
        return [*folder.glob("data/*-places.parquet"), *folder.glob("data/*-keys.parquet")]


def draw_rows(chance: random.Random, count: int, name: str) -> list[Row]:
    keys = {
        (chance.choice(["eu", "us", None]), chance.choice([None, float("inf"), -0.0, *map(float, range(1, 60))]))
        for _ in range(count)
    }
    return [(region, number, name) for region, number in sorted(keys, key=repr)]


@pytest.mark.parametrize("is_large", [False, True], ids=["rewritten", "marked"])
def test_generated_rounds_leave_the_same_rows_in_both_places(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    monkeypatch.setattr(row_pieces, "BUCKET_BYTES", 200)
    if is_large:
        monkeypatch.setattr(row_displacer, "LARGE_BYTES", 0)
        monkeypatch.setattr(row_displacer, "MOST_MARKED", 0.9)
        monkeypatch.setattr(row_displacer, "MOST_MARKS", 2)
    runner = PicklingRunner()
    process, units = Upserting(store, "a", run_in_process), Upserting(store, "b", runner)
    chance = random.Random(3)
    rounds: list[tuple[list[list[Row]], KeyPaths]] = [([draw_rows(chance, 150, "first")], KeyPaths())]
    for number in range(5):
        removed = tmp_path / f"removed-{number}.parquet"
        pq.write_table(table_of(draw_rows(chance, 5, ""), NARROW).select(list(KEY)), removed)
        rounds.append(([draw_rows(chance, 12, f"round {number}")], KeyPaths(removed if number % 2 else None)))
    present = tmp_path / "present.parquet"
    pq.write_table(table_of(draw_rows(chance, 100, "")).select(list(KEY)), present)
    rounds.append(([draw_rows(chance, 4, "last")], KeyPaths(present=(present,))))
    deletes = []
    for batches, key_paths in rounds:
        for table in (process, units):
            table.upsert(*batches, key_paths=key_paths)
        assert units.read() == process.read()
        deletes.append((units.delete_files, process.delete_files))
    assert all(in_units == in_process for in_units, in_process in deletes)
    assert any(in_units for in_units, _ in deletes) == is_large
    assert runner.shuffled_buckets > 20
    assert units.list_scratch_files() == []


def test_a_large_version_is_chosen_by_its_key_columns(store: Store) -> None:
    runner = PicklingRunner()
    table = Upserting(store, "a", runner)
    table.upsert([("eu", float(number), "x" * 1000 + str(number)) for number in range(1000)])
    table.upsert([("eu", 1.0, "y")])
    metadata = table_metadata.load_metadata(store, table.location)
    sizes: list[Any] = [entry.file.file_size_in_bytes for entry in read_entries(store, metadata)]
    assert 0 < runner.chosen[-1] < max(sizes)
