"""Parquet registered where it is: Spark, PyIceberg and DuckDB read the same rows of it."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connect.load.load import LoadOptions, load_files
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.names import TableName
from tests.interoperability.engines import Engines

T = "ods.orders"


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def register(store: Store, *patterns: Path) -> None:
    load_files(store, TableName.parse(T), [str(pattern) for pattern in patterns], LoadOptions(in_place=True))


def test_hive_folders(engines: Engines, store: Store, tmp_path: Path) -> None:
    write(tmp_path / "day=2026-01-02/shop=a%20b/x.parquet", id=[1, 2])
    write(tmp_path / "day=2026-01-03/shop=c/x y.parquet", id=[3])
    write(tmp_path / "day=__HIVE_DEFAULT_PARTITION__/shop=c/x.parquet", id=[4])
    register(store, tmp_path / "*" / "*" / "*.parquet")
    first = [(1, date(2026, 1, 2), "a b"), (2, date(2026, 1, 2), "a b")]
    others = [(3, date(2026, 1, 3), "c"), (4, None, "c")]
    assert engines.agreed(T) == engines.runnel(T, engine="spark") == [*first, *others]
    asked = {"shop = 'a b'": first, "day is null": others[1:], "day > date'2026-01-02'": others[:1]}
    for where, expected in asked.items():
        assert engines.runnel(T, where=where) == engines.runnel(T, engine="spark", where=where) == expected
    engines.sql(f"insert into {T} values (5, date'2026-01-03', 'c')", f"delete from {T} where id = 1")
    left = [*first[1:], *others, (5, date(2026, 1, 3), "c")]
    assert engines.agreed(T) == left
    assert len(list(tmp_path.glob("day=*/*/*.parquet"))) == 3, "the files are where they were"
    compact(store, force=True)
    assert engines.agreed(T) == left and fsck(store, deep=True).is_clean


def test_columns_are_found_by_name(engines: Engines, store: Store, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", id=[1], v=[0.5], s=[{"a": 1, "b": "x"}])
    write(tmp_path / "b.parquet", s=[{"a": 2, "b": "z"}], id=[2])
    register(store, tmp_path / "a.parquet")
    register(store, tmp_path / "b.parquet")
    engines.sql(f"alter table {T} rename column v to w", f"alter table {T} add column note string")
    engines.sql(f"insert into {T} values (3, 1.5, struct(3, 'y'), 'new')")
    assert engines.agreed(T) == [
        (1, 0.5, {"a": 1, "b": "x"}, None),
        (2, None, {"a": 2, "b": "z"}, None),
        (3, 1.5, {"a": 3, "b": "y"}, "new"),
    ]
