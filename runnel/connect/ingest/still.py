"""Make sure that files are what they were when they were found: else the rows read may be half old, half new."""

import os
import time
from pathlib import Path

from runnel.connect.ingest.digests import is_settled, settles_ns, sha256_of
from runnel.connect.ingest.found import Arrival, Found
from runnel.errors import RunnelError

_MOST_NS = 2_000_000_000


def check_still(root: Path, found: Found) -> None:
    """Raise where a file that was read is not what it was.

    A file that was written just before it was found may have been written again since without its time showing it:
    it is hashed once more, when its time would show the next write.
    """
    doubtful = []
    for arrival in found.reads:
        if not _is_same(root, arrival):
            raise _changed(arrival)
        if not is_settled(arrival.modified_ns, found.looked_ns):
            doubtful.append(arrival)
    if not doubtful:
        return
    left_ns = max(settles_ns(arrival.modified_ns) for arrival in doubtful) - time.time_ns()
    if 0 < left_ns <= _MOST_NS:
        time.sleep(left_ns / 1e9)
    for arrival in doubtful:
        if sha256_of(root, arrival.path) != arrival.sha256 or not _is_same(root, arrival):
            raise _changed(arrival)


def _is_same(root: Path, arrival: Arrival) -> bool:
    try:
        now = os.stat(root / arrival.path)  # noqa: PTH116
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (arrival.size, arrival.modified_ns)


def _changed(arrival: Arrival) -> RunnelError:
    what = f"{arrival.path} changed while it was read; nothing of this run is visible"
    fix = "run it again when its writer has finished; a writer that renames a finished file into place avoids this"
    return RunnelError("SOURCE_FILE_CHANGED", what, at=arrival.path, fix=fix)
