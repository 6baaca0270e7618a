"""Files to load, and the load itself, so that a test states only what matters."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.http import rate_limit
from runnel.connect.ingest import part_writer
from runnel.connect.ingest.units import file_unit
from runnel.connect.ingest.units.load_units import prepare_load_in_units
from runnel.connect.load import quarantine_files
from runnel.connect.load.load import LoadOptions, LoadResult, UnitLoading, load_files
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.lake.store import Store
from runnel.lake.work_runner import WorkContext
from runnel.names import TableName
from tests.connect.cached_migrations import quick_lakes  # noqa: F401
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.connect.jdbc.source_databases import database, lite, pg, shop, small  # noqa: F401
from tests.lake.pickling_runner import PicklingRunner

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


@pytest.fixture(params=["process", pytest.param("units", marks=pytest.mark.cluster)])
def loading(request: pytest.FixtureRequest, store: Store, data: Writing) -> Loading:
    """Return `load` into ods.orders of an empty lake; files are read in this process, or in units."""

    def work(*patterns: str, table: str = "ods.orders", **options: Any) -> LoadResult:
        progress = options.pop("progress", None)
        work_context = WorkContext(PicklingRunner(), progress)
        unit_loading = UnitLoading(work_context, prepare_load_in_units) if request.param == "units" else None
        name, load_options = TableName.parse(table), LoadOptions(**options)
        return load_files(store, name, patterns, load_options, progress=progress, unit_loading=unit_loading)

    return work


@pytest.fixture(params=["process", pytest.param("units", marks=pytest.mark.cluster)])
def ods(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Ingesting:
    """Return a source of CSV files that nothing was read of; they are read in this process, or in units."""
    (tmp_path / "shop" / "data").mkdir(parents=True)
    files = Files("data/**/*.csv", "csv", parse_columns("id long, name string"))
    ingesting = Ingesting(store, tmp_path / "shop", Source(ORDERS, files, SourceLocation("flows/orders.py", 3)))
    if request.param == "units":
        ingesting.choose_runner = PicklingRunner()
    return ingesting


@pytest.fixture
def shared_data_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two source files that are read at once share data files already, and two owners in the quarantine.

    Units are small, so that several of them write such data files.
    """
    monkeypatch.setattr(file_unit, "SHARED_UNIT_BYTES", 0)
    monkeypatch.setattr(part_writer, "LEAST_SHARED", 2)
    monkeypatch.setattr(quarantine_files, "LEAST_SHARED", 2)
