"""Erasing rows that streams read, and moving a project with streams: the streams go on where they were."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.failpoint import InjectedFault
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.names import TableName
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
