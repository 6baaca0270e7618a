"""Where the feeds of a test are read: in this process, or in units as executors do, without Spark."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows, FetchPlace, UnitFeed
from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.model.progress import Progress, ignore_progress
from tests.lake.pickling_runner import PicklingRunner


def use_units(request: pytest.FixtureRequest) -> PicklingRunner:
    """Let runs of the test read their sources in units, and return the runner."""
    runner = PicklingRunner()
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setattr("runnel.run.run_context.RunContext.choose_runner_of", lambda _run, _table: runner)
    return runner


def fetch_in_units(
    feed: UnitFeed,
    state: FeedState | None,
    changes: FeedChanges,
    runner: PicklingRunner,
    root: Path,
    report_progress: Progress = ignore_progress,
) -> FetchedRows:
    """Fetch in units, and return the result as `fetch` would: with files of this machine, which stay."""
    scratch = SharedScratch(WarehouseFiles(str(root)), str(root / f"fetched-{uuid.uuid4().hex[:8]}"))
    fetched = feed.fetch_in_units(state, changes, FetchPlace(runner, scratch, report_progress))
    parts = (FetchedFile(Path(part.location), part.name, part.format) for part in fetched.shared_parts)
    return replace(fetched, parts=tuple(parts))
