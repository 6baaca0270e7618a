"""What a source's table and its quarantine hold after any history equals a model in memory.

Generated histories, each from a seed, and those that once went wrong. RUNNEL_SOURCE_HISTORIES=200 tries more of them,
and longer ones, from RUNNEL_SOURCE_SEED=n on; RUNNEL_SOURCE_REDUCE=1 leaves out of one what it does not need to fail.
"""

import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.lake.work_runner import ChooseRunner, run_in_process
from tests.connect.source_histories.history_machine import Kind, Machine, parsed
from tests.connect.source_histories.random_histories import History, history
from tests.lake.pickling_runner import PicklingRunner

PLACES: dict[str, ChooseRunner] = {"process": run_in_process, "units": PicklingRunner()}
MANY = os.environ.get("RUNNEL_SOURCE_HISTORIES")
SEED = int(os.environ.get("RUNNEL_SOURCE_SEED") or 1)
REDUCES = bool(os.environ.get("RUNNEL_SOURCE_REDUCE"))

NAMED = {
    "equal contents after a revert, then the first file changes": (
        "keep",
        "put f1 X; run; put f2 V; run; revert; put f3 V; run; put f2 W; run",
    ),
    "equal contents after a revert, then the first file vanishes": (
        "delete",
        "put f1 X; run; put f2 V; run; revert; put f3 V; run; remove f2; run",
    ),
    "a removal is reverted, and the file comes back": (
        "delete",
        "put a X; put b V; run; remove b; run; revert; put b V; run",
    ),
    "a removal is reverted, and the file comes back under another name": (
        "delete",
        "put a X; put b V; run; remove b; run; revert; put c V; run; put b V; run; remove c; run",
    ),
    "a renamed file is changed, reverted and changed again": (
        "keep",
        "put a X; put c EMPTY; run; move a b; run; put b V; run; revert; put b W; run",
    ),
    "a file is overwritten by a renamed one, and that is reverted": (
        "keep",
        "put a X; put b V; run; move a b; run; revert; put b W; run",
    ),
    "a rotated file with bad rows is corrected": (
        "keep",
        "put a Z; run; move a b; put a Y; run; put b X; run",
    ),
    "a file with a bad row is read on a branch, then on main": (
        "keep",
        "put a X; run; fork; put b Y; run dev; run main",
    ),
    "a file with a bad row is rewound and read again": (
        "keep",
        "put a X; run; put b Y; run; rewind 1; run",
    ),
    "a bad row is corrected, and that is undone in the file": (
        "keep",
        "put a X; put b Y; run; put b V; run; put b Y; run",
    ),
    "a file with a bad row vanishes": (
        "delete",
        "put a X; run; put b Y; run; remove b; run; release b",
    ),
    "a file is corrected after a compaction": (
        "keep",
        "put a W; put b W; put c W; put d Y; put e Y; put f Y; run; compact; put a X; run; release a; release b",
    ),
    "the first run is reverted": (
        "keep",
        "put a X; run; revert; run; put b Y; run; put a V; run",
    ),
    "rows of a renamed file are released, and the file changes": (
        "keep",
        "put a Y; run; move a b; run; release a; put b X; run",
    ),
    "a removal is reverted after the file came back": (
        "delete",
        "put a X; put b V; run; remove b; run; put b V; run; revert 1; put b W; run",
    ),
    "a revert is reverted after a rewind, and the file comes again": (
        "keep",
        "put a Z; run; put b Y; run; revert; rewind 2; remove b; put c W; run; revert 1; put b V; run",
    ),
    "a release is reverted after the file was read again": (
        "keep",
        "put a Z; run; release a; put a EMPTY; run; revert 1; release a",
    ),
    "rows of an earlier reading are released, and the file changes": (
        "keep",
        "put a W; run; put a Z; run; revert; release a; put a X; run",
    ),
    "a file with released rows vanishes, and another has the contents that it had": (
        "delete",
        "put a Y; run; release a; put b Z; run; put b Y; run; put a W; run; remove a; run",
    ),
    "a file with released rows vanishes after a rewind, and another has the contents that it had": (
        "delete",
        "put a Y; run; release a; put b Z; run; revert 1; rewind 1; put b Y; run; put a W; run; remove a; run",
    ),
    "two commits are reverted, the newest first": (
        "keep",
        "put a X; run; put a V; run; put a W; run; revert 0; revert 2; put a X; run",
    ),
}


# Source files that are read at once and share data files.
SHARED = {
    "a file changes, and another": ("keep", "put a X; put b Y; put c W; run; put b V; run; put a W; run"),
    "files change after a compaction": (
        "keep",
        "put a X; put b Y; put c W; run; put b V; run; compact; put a Z; run; put c X; run",
    ),
    "each file vanishes": ("delete", "put a X; put b Y; put c W; run; remove a; run; remove c; run; remove b; run"),
    "a file is renamed and changes": (
        "keep",
        "put a X; put b V; run; move a c; run; put c W; put a Y; run; put b X; run",
    ),
    "a change is reverted after another": (
        "keep",
        "put a X; put b V; put c W; run; put a W; run; put b X; run; revert 1; put c V; run; put a V; run",
    ),
    "a file is changed back, and the change before is reverted": (
        "keep",
        "put a X; put b V; run; put a W; run; put a X; run; revert 1; put b W; run; revert 0; put a V; run",
    ),
    "a compaction is between a change and its revert": (
        "keep",
        "put a X; put b V; put c Y; run; put a W; run; compact; revert; put b X; run; compact; put a V; run",
    ),
    "the first read is reverted after a compaction": (
        "keep",
        "put a X; put b V; run; put c W; run; compact; revert 1; put a W; put c X; run",
    ),
    "bad rows of one file are released": (
        "keep",
        "put a Y; put b W; put c Z; run; release a; put b X; run; release c; put a X; put c V; run",
    ),
    "a release is reverted after the other file changed": (
        "keep",
        "put a Y; put b W; run; release a; put b V; run; revert 1; put a X; run",
    ),
    "a release follows a compaction": (
        "keep",
        "put a Y; put b W; put c X; run; compact; release b; put a V; run; compact; put b X; run",
    ),
    "rows are erased, and files change": (
        "keep",
        "put a X; put b V; put c W; run; erase 1; put a Y; run; compact; erase 2; put c V; run; revert 0; put b Z; run",
    ),
    "rows are erased before and after a compaction": (
        "delete",
        "put a X; put b V; run; compact; put c W; run; erase 5; revert 0; remove b; run; erase 1; remove a; run",
    ),
    "a source is rewound": (
        "keep",
        "put a X; put b V; run; put a W; put c Y; run; rewind 1; run; compact; rewind 2; put a V; run",
    ),
    "a branch reads the same files": (
        "keep",
        "put a X; put b V; run; fork; put a W; put c Y; put d X; run dev; run; compact; put c V; run dev; run",
    ),
}


# A log of changes is read as any source of files is: only where the table that follows from it may differ it counts.
OF_LOGS = (
    "equal contents after a revert, then the first file changes",
    "a file is corrected after a compaction",
    "the first run is reverted",
    "rows of an earlier reading are released, and the file changes",
    "a file with released rows vanishes, and another has the contents that it had",
)


@pytest.mark.parametrize(("removed", "steps"), NAMED.values(), ids=NAMED)
def test_a_history_that_went_wrong(tmp_path: Path, removed: str, steps: str) -> None:
    Machine(tmp_path, Kind(removed)).play(*parsed(steps))


@pytest.mark.usefixtures("shared_data_files")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("removed", "steps"), SHARED.values(), ids=SHARED)
def test_a_history_of_files_that_share_data_files(tmp_path: Path, removed: str, steps: str, place: str) -> None:
    Machine(tmp_path, Kind(removed), PLACES[place]).play(*parsed(steps))


@pytest.mark.parametrize("name", OF_LOGS)
def test_a_history_of_a_log_that_went_wrong(tmp_path: Path, name: str) -> None:
    removed, steps = NAMED[name]
    Machine(tmp_path, Kind(removed, is_log=True)).play(*parsed(steps))


def choose_place(number: int) -> ChooseRunner:
    """Return where every other history reads its files: in this process, or in units."""
    return list(PLACES.values())[number % 2]


def fails(found: History, choose_runner: ChooseRunner) -> bool:
    try:
        with tempfile.TemporaryDirectory() as folder:
            Machine(Path(folder), found.kind, choose_runner).play(*found.steps)
    except Exception:
        return True
    return False


def reduced(found: History, choose_runner: ChooseRunner) -> History:
    """Return a history without steps that it does not need to fail, each tried once, the last first."""
    for place in reversed(range(len(found.steps))):
        less = replace(found, steps=(*found.steps[:place], *found.steps[place + 1 :]))
        found = less if fails(less, choose_runner) else found
    return found


@pytest.mark.usefixtures("shared_data_files")
@pytest.mark.timeout(86400 if MANY else 300)
def test_generated_histories_equal_the_model() -> None:
    done: Counter[str] = Counter()
    for number in range(int(MANY or 10)):
        found = history(SEED + number, (5, 12) if MANY else (3, 6))
        try:
            with tempfile.TemporaryDirectory() as folder:
                machine = Machine(Path(folder), found.kind, choose_place(number)).play(*found.steps)
        except Exception as error:
            told = reduced(found, choose_place(number)) if REDUCES else found
            raise AssertionError(f"RUNNEL_SOURCE_SEED={SEED + number}: {told}") from error
        done.update(word.split()[0] for word in machine.done)
    for word in ("run", "revert", "rewind", "release", "compact", "erase", "merge"):
        assert done[word], f"no history had a {word} that took effect: {done}"
