"""Read what was found of a source into its table: one new version, staged. Publishes nothing.

What is heavy is imported when something is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.ingest.detect.file_changes import Found, Position
from runnel.declare.model.flow import Source
from runnel.lake.flow_state.ingest_position import Seen

if TYPE_CHECKING:
    from runnel.lake.store import Store

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Ingested:
    """A staged version of a source's table, and what to record of the position with it.

    `rows` and `files` were read. `quarantine` is the staged version of the quarantine table, where that changed.
    `unread` says why files were skipped, `left` which are still being written, `warnings` what else people should know.
    `oldest_at` is when, in seconds since 1970, the oldest of the rows came to the system that they are read from.
    Where nothing is to be published, it is the version that was there.
    """

    location: str
    content: str
    rows: int
    files: int
    seen: tuple[Seen, ...]
    dropped: int = 0
    quarantine: tuple[str, str] | None = None  # location, content
    new_columns: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    oldest_at: float | None = None


def read(
    store: "Store",
    source: Source,
    root: Path,
    found: Found,
    base: str | None,
    seen: Position,
    *,
    quarantine: str | None = None,
    run: str = "",
    progress: Progress | None = None,
) -> Ingested:
    """Read new and changed files, and stage the version of the table that has their rows and lacks those that go.

    `base` and `quarantine` are the versions of the table and of its quarantine table now. `seen` is asked only where
    the rows of a file can't be found otherwise: it knows of every file that was ever read. Raises where rows are bad,
    by the source's `on_bad`; then nothing is to be published. A file that changed while it was read is left out.
    """
    from runnel.connect.ingest.ingest_files import take_in
    from runnel.connect.ingest.source_errors import told

    with told(source):
        return take_in(store, source, root, found, base, seen, quarantine, run, progress)
