"""Branches that read the files of one source are merged: each file's rows are there once, and belong to one path."""

from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from runnel.lake.flow_state.ingest_positions import read_processed_files as seen_files
from runnel.lake.merge.merge import MergeConflict
from runnel.names import TableName
from tests.connect.source_histories.history_machine import CONTENTS, TABLE, Kind, Machine, parsed

RENAMED = "a file was renamed on one side and read differently on the other; run both branches, then merge"
START = "put a X; put d V; run; fork; "
REFUSED = {
    "a file is renamed differently": (
        START + "move a b; put e V; run; remove e; move b c; put f X; run dev",
        "data/a.csv and data/b.csv and data/c.csv",
    ),
    "a file is renamed here and changed there": (
        START + "put a V; run dev; put a X; run; move a b; run",
        "data/a.csv and data/b.csv",
    ),
    "a file is removed here and renamed there": (
        START + "move a b; put e V; run dev; remove b; run",
        "data/a.csv and data/b.csv",
    ),
    "a new file is renamed on one side": (
        START + "put b V; run; run dev; move b c; put e X; run dev",
        "data/b.csv and data/c.csv",
    ),
}
MERGED = {
    "a file is renamed on one side": (START + "move a b; put e X; run dev; remove e; move b a; put f V; run", "bdef"),
    "a file is renamed alike": (START + "move a b; run; put e X; run dev; put f V; run", "bdef"),
    "a file with bad rows is read on both sides": (START + "put b Y; run; run dev", "abd"),
    "a file with bad rows is read on both sides, and others on each": (
        "put g Z; " + START + "put b Y; run; run dev; put c W; run dev; remove c; put e Y; run",
        "abcdeg",
    ),
    "each side reads its first file with bad rows": (
        START + "put b Y; run; remove b; put c Z; put e W; run dev; put b Y; remove e",
        "abcde",
    ),
    "each side reads its first file with bad rows, and both read one": (
        START + "put b Y; run; run dev; put c W; run dev; remove c; put e Z; run",
        "abcde",
    ),
    "the only file that one side reads has no good rows": (
        START + "put b V; run; remove b; put c Z; run dev; put b V",
        "abcd",
    ),
    "the only file that one side reads is empty": (
        START + "put b V; run; remove b; put c EMPTY; run dev; put b V",
        "abcd",
    ),
    "files are read together on both sides, and others with them": (
        START + "put b X; put c V; run; put e W; put f X; run dev; remove e; remove f",
        "abcdef",
    ),
    "files that were read together change on each side, after a compaction": (
        START + "put a V; run; compact; put a X; put d X; put b V; run dev; put a V; compact dev",
        "abd",
    ),
    "a bad row is corrected on one side": (
        "put b Y; " + START + "put b X; run; put b Y; put c W; run dev; put b X",
        "abcd",
    ),
}


@pytest.fixture(params=["own data files", "shared data files"])
def data_files(request: pytest.FixtureRequest) -> None:
    """Let each source file have data files of its own, or share them with those that are read at once."""
    if request.param == "shared data files":
        request.getfixturevalue("shared_data_files")


@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize(("steps", "paths"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_only_one_side_renamed_is_named(tmp_path: Path, steps: str, paths: str) -> None:
    machine = Machine(tmp_path, Kind("delete")).play(*parsed(steps))
    with machine.project.open() as lake, pytest.raises(MergeConflict) as raised:
        lake.merge("dev")
    assert f"`ods.orders`: {paths}: {RENAMED}" in raised.value.what


@pytest.mark.usefixtures("data_files")
@pytest.mark.parametrize(("steps", "paths"), MERGED.values(), ids=MERGED)
def test_the_rows_of_each_file_are_there_once(tmp_path: Path, steps: str, paths: str) -> None:
    """After the merge each file belongs to one path; what the files give by then is there once, and can be replaced."""
    machine = Machine(tmp_path, Kind("keep")).play(*parsed(steps))
    with machine.project.open() as lake:
        merged = lake.merge("dev")
        table = TableName.parse(TABLE)
        position = list(seen_files(lake.store.db, lake.store.commit(), table).values())
    owners = [owner for seen in position for owner in seen.all_owners]
    assert merged is not None and len(owners) == len(set(owners))
    assert sorted(seen.path for seen in position) == [f"data/{name}.csv" for name in paths]
    rows, bad = Counter(), Counter()
    for seen in position:
        contents = next(each for each in CONTENTS.values() if sha256(each.text.encode()).hexdigest() == seen.sha256)
        rows.update(contents.good)
        bad.update(contents.bad)
    with machine.project.open() as lake:
        held = lake.query(f"select id, ts, amount from {TABLE}", engine="duckdb").rows()
        assert Counter(map(tuple, held)) == rows
        assert Counter(row.raw for row in lake.quarantine(TABLE)) == bad
