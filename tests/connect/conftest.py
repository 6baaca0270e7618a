"""Files to load, and the load itself, so that a test states only what matters."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.http import rate_limit
from runnel.connect.load.load import LoadOptions, LoadResult, load_files
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.cached_migrations import quick_lakes  # noqa: F401
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.connect.jdbc.source_databases import database, lite, pg, shop, small  # noqa: F401

Loading = Callable[..., LoadResult]
Writing = Callable[[str, str | bytes], str]


@pytest.fixture(autouse=True)
def unhurried() -> None:
    """Forget which servers asked to be left alone: another test's server may get the same port."""
    rate_limit._blocked_until.clear()
    rate_limit._reserved_at.clear()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writing:
    """Return a function that writes a file into the working folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(name: str, contents: str | bytes) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = contents.encode() if isinstance(contents, str) else contents
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return name

    return write


@pytest.fixture
def loading(store: Store, data: Writing) -> Loading:
    """Return `load` into ods.orders of an empty lake."""

    def work(*patterns: str, table: str = "ods.orders", **options: Any) -> LoadResult:
        progress = options.pop("progress", None)
        return load_files(store, TableName.parse(table), patterns, LoadOptions(**options), progress=progress)

    return work


@pytest.fixture
def ods(store: Store, tmp_path: Path) -> Ingesting:
    """Return a source of CSV files that nothing was read of."""
    (tmp_path / "shop" / "data").mkdir(parents=True)
    files = Files("data/**/*.csv", "csv", parse_columns("id long, name string"))
    return Ingesting(store, tmp_path / "shop", Source(ORDERS, files, SourceLocation("flows/orders.py", 3)))
