"""Erasing rows that streams read, and moving a project with streams: the streams go on where they were."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.failpoint import InjectedFault
from runnel.lake.flow_state import streams
from runnel.lake.iceberg import manifests
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.names import TableName
from runnel.project.execution.run_streams import reset_stream
from runnel.run.stream import failpoints
from tests.run.stream.click_files import Clicks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = TableName.parse("ods.clicks")
STREAMS = """
@rn.task("dws.ids", stream="clicks")
def ids(clicks):
    return clicks.select("id", "user")

@rn.task("dws.pages", stream="clicks")
def pages(clicks):
    return clicks.select("id", "page")
"""


def test_streams_go_on_after_rows_were_erased_and_the_project_was_moved(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    clicks = Clicks(tmp_path / "here", spark)
    clicks.streams(STREAMS)
    clicks.click((1, "a", "ann", "08:00:00"), (2, "a", "bob", "08:00:01"))
    clicks.ran()
    clicks.click((3, "b", "ann", "08:01:00"))
    clicks.click((4, "b", "bob", "08:02:00"), (5, "b", "ann", "08:02:00"))
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", f"{failpoints.LOGS_EXTENDED}:error")
    with pytest.raises(InjectedFault):  # a tape reaches further than what was read of it
        clicks.run()
    monkeypatch.delenv("RUNNEL_FAIL")
    with clicks.open() as lake:
        done = erase(lake.store, CLICKS, "user = 'ann'")
        assert (done.rows, done.streams) == (3, ("dws.ids", "dws.pages"))
        assert {found.table: "runnel stream reset" in found.fix for found in done.downstream} == {
            "dws.ids": True,
            "dws.pages": True,
        }
        assert fsck(lake.store, deep=True).is_clean
    clicks.ran()
    clicks.click((6, "c", "bob", "08:03:00"))
    clicks.ran()
    assert clicks.rows("dws.ids") == [(1, "ann"), (2, "bob"), (4, "bob"), (6, "bob")]
    (tmp_path / "here").rename(tmp_path / "there")
    clicks.root = tmp_path / "there"
    with clicks.open() as lake:
        lake._moved = True
        relocate(lake.store)
        assert fsck(lake.store, deep=True).is_clean
    clicks.click((7, "d", "bob", "08:04:00"))
    clicks.ran()
    assert [row[0] for row in clicks.rows("dws.pages")] == [1, 2, 4, 6, 7]
    with clicks.open() as lake:
        assert fsck(lake.store, deep=True).is_clean


def test_a_stream_that_lacks_a_file_offers_a_reset_and_no_backup_with_erased_rows(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.streams(STREAMS[: STREAMS.index("@rn.task", 10)])
    clicks.click((1, "a", "ann", "08:00:00"))
    clicks.ran()
    clicks.click((2, "b", "bob", "08:01:00"))
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", f"{failpoints.LOGS_EXTENDED}:error")
    with pytest.raises(InjectedFault):
        clicks.run()
    monkeypatch.delenv("RUNNEL_FAIL")
    clicks.click((3, "b", "bob", "08:02:00"))
    clicks.ran("ods.clicks")
    with clicks.open() as lake:
        (stream,) = lake.store.db.read(streams.list_streams).values()
        manifest_list = load_metadata(lake.store, stream.append_logs[CLICKS].location).current_snapshot().manifest_list
        manifests.clear_cache()
        Path(manifest_list.removeprefix("file://")).unlink()
    error = clicks.run().errors[0]
    assert error.code == "STREAM_TAPE_LOST" and str(error).endswith(
        "is gone, and the stream of `dws.ids` can't continue without it\n  at flows/flow.py:6\n"
        "  fix: start it again from the beginning: runnel stream reset dws.ids"
    )
    with clicks.open() as lake:
        reset_stream(lake.store, "dws.ids", "main")
    clicks.ran()
    assert clicks.rows("dws.ids") == [(1, "ann"), (2, "bob"), (3, "bob")]
    clicks.click((4, "c", "bob", "08:03:00"))
    clicks.ran("ods.clicks")
    max((clicks.root / ".runnel").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns).unlink()
    error = clicks.run("dws.ids").errors[0]
    assert (error.code, error.what) == (
        "STREAM_FILE_GONE",
        "a file that the stream of `dws.ids` has still to read is gone",
    )
    fix = "run it again: it continues if rows were erased meanwhile; else start it again from the beginning:"
    assert error.fix == f"{fix} runnel stream reset dws.ids"
