"""Make sure that files are what they were when they were found: else the rows read may be half old, half new."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runnel.connect.ingest.detect.digests import is_settled, settles_ns, sha256_of
from runnel.connect.ingest.detect.file_changes import Arrival, Found
from runnel.connect.ingest.detect.listing import is_address
from runnel.errors import RunnelError

_MOST_NS = 2_000_000_000


def changed(root: Path, found: Found, storage: Mapping[str, str]) -> frozenset[str]:
    """Return the paths of files that were read and are not what they were.

    A file that was written just before it was found may have been written again since without its time showing it:
    it is hashed once more, when its time would show the next write.
    """
    away = [arrival for arrival in found.reads if is_address(arrival.path)]
    moved, doubtful = _moved(away, storage), []
    for arrival in found.reads:
        if is_address(arrival.path):
            continue
        if not _is_same(root, arrival):
            moved.add(arrival.path)
        elif not is_settled(arrival.modified_ns, found.looked_ns):
            doubtful.append(arrival)
    if doubtful:
        left_ns = max(settles_ns(arrival.modified_ns) for arrival in doubtful) - time.time_ns()
        if 0 < left_ns <= _MOST_NS:
            time.sleep(left_ns / 1e9)
    for arrival in doubtful:
        if not _is_same(root, arrival) or sha256_of(root, arrival.path) != arrival.sha256:
            moved.add(arrival.path)
    return frozenset(moved)


def _moved(away: Sequence[Arrival], storage: Mapping[str, str]) -> set[str]:
    if not away:
        return set()
    from runnel.connect.ingest.detect.object_listing import moved

    return moved(((arrival.path, arrival.size, arrival.modified_ns) for arrival in away), storage)


def _is_same(root: Path, arrival: Arrival) -> bool:
    try:
        now = os.stat(root / arrival.path)  # noqa: PTH116
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (arrival.size, arrival.modified_ns)


def refused(path: str) -> RunnelError:
    """Return the error that says that nothing could be read for changes."""
    what = f"{path} changed while it was read; nothing of this run is visible"
    fix = "run it again when its writer has finished; a writer that renames a finished file into place avoids this"
    return RunnelError("SOURCE_FILE_CHANGED", what, at=path, fix=fix)
