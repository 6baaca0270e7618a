"""Measure files in the lake: many small ones in one commit, and one more afterwards.

The peers do on the same files what `put` does for its user. `git add` and `git commit` store contents by checksum in a
version that can be gone back to; `cp -r` with `sha256sum` and `sync` is the least that copies durably and knows what
it copied. Making the files is not timed; all read them from a warm cache.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.figure import Figure
from runnel.lake.files.put import put_files
from runnel.lake.store import Store
from runnel.names import TableName

COUNT = 100_000
FEW = 1_000
TABLE = TableName("ods", "files")
TIMES = 5


def run() -> list[Figure]:
    """Return the measurements; nothing is printed, and nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        root = Path(folder)
        many, few = _make(root / "many", COUNT), _make(root / "few", FEW)
        large, small = _lake(root / "large"), _lake(root / "small")
        seconds = _timed(lambda: put_files(large, TABLE, [many]))
        put_files(small, TABLE, [few])
        peers = [("cp -r, sha256sum, sync", _timed(lambda: _copy(many, root / "copy")))]
        if shutil.which("git"):
            peers.append(("git add and commit", _timed(lambda: _git(many, root / "git"))))
        more, less = _one_more(large, root / "one"), _one_more(small, root / "one")
        return [
            Figure(f"files: put {COUNT:,} x 1 KiB", seconds, "s", "<= 60 s"),
            *(Figure(f"files: {name} / put", taken / seconds, details={"seconds": taken}) for name, taken in peers),
            Figure(
                f"files: one more file, {COUNT:,} there / {FEW:,} there",
                more / less,
                target="<= 1.5",
                details={"seconds": more, "seconds_with_few": less},
            ),
        ]


def _make(folder: Path, count: int) -> Path:
    chance = random.Random(1)
    for number in range(count):
        below = folder / f"{number // 1000:03d}"
        if number % 1000 == 0:
            below.mkdir(parents=True)
        (below / f"{number:06d}.bin").write_bytes(chance.randbytes(1024))
    return folder


def _lake(folder: Path) -> Store:
    folder.mkdir()
    return Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse", author="bench")


def _one_more(store: Store, folder: Path) -> float:
    """Return the median time of putting one file among those that are there."""
    folder.mkdir(exist_ok=True)
    taken = []
    for number in range(TIMES):
        file = folder / f"{number:06d}-more.bin"
        file.write_bytes(os.urandom(1024))
        taken.append(_timed(lambda file=file: put_files(store, TABLE, [file], prefix="000")))
    return median(taken)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _git(source: Path, folder: Path) -> None:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
    git = ["git", *who, f"--git-dir={folder}", f"--work-tree={source}"]
    for command in (
        ["git", "init", "-q", "--bare", str(folder)],
        [*git, "add", "-A"],
        [*git, "commit", "-q", "-m", "b"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _copy(source: Path, folder: Path) -> None:
    subprocess.run(["cp", "-r", str(source), str(folder)], check=True)
    sums = f"find {folder} -type f -print0 | xargs -0 sha256sum > {folder}.sums"
    subprocess.run(["sh", "-c", f"{sums} && sync -f {folder}"], check=True)
