"""Read the changed files of a source and stage one new version of its table. Publishes nothing.

Heavy modules are imported only when files are read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.ingest.detect.file_changes import FileChanges, ProcessedFilesLoader
from runnel.declare.model.flow import Source
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.work_runner import ChooseRunner, run_in_process
from runnel.model.progress import Progress
from runnel.model.work_place import WorkPlace

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class IngestTarget:
    """Where rows of a source go: its table and its quarantine table, in a run that is told of the progress.

    `base` and `quarantine` are the locations of their current versions, None if there is no table. `run` is recorded
    with quarantined rows. `choose_runner` says where files are read.
    """

    store: "Store"
    source: Source
    base: str | None
    quarantine: str | None = None
    run: str = ""
    report_progress: Progress | None = None
    choose_runner: ChooseRunner = run_in_process

    def report(self, activity: str, done: int, total: int | None = None) -> None:
        """Report progress, if anybody wants to know it; raises if the run was cancelled."""
        if self.report_progress is not None:
            self.report_progress(activity, done, total)


@dataclass(frozen=True)
class IngestResult:
    """A staged version of a source's table, and the records of processed files to store with it.

    `rows` and `files` were read. `quarantine` is the staged version of the quarantine table, if it changed.
    `unread_reasons` tell why files were skipped, `unfinished` which are still being written; `warnings` are for users.
    `oldest_at` is when, in seconds since 1970, the oldest of the rows arrived in the system that they are read from.
    `place` is where files were read. If there is nothing to publish, `location` is that of the existing version.
    """

    location: str
    content: str
    rows: int
    files: int
    processed_files: tuple[ProcessedFile, ...]
    dropped: int = 0
    quarantine: tuple[str, str] | None = None  # location, content
    new_columns: tuple[str, ...] = ()
    unread_reasons: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    oldest_at: float | None = None
    place: WorkPlace | None = None


def ingest_source(
    target: IngestTarget, root: Path, file_changes: FileChanges, load_processed_files: ProcessedFilesLoader
) -> IngestResult:
    """Read new and changed files, and stage the version with their rows and without the removed ones.

    `load_processed_files` loads the records of every file ever read; it is called only if the rows of a file can't be
    found otherwise. Raises if rows are bad and the source's `on_bad` is "stop"; then nothing must be published. A file
    that changes while it is read is skipped.
    """
    from runnel.connect.ingest.ingest_files import ingest_files
    from runnel.connect.ingest.source_errors import describe_source_errors

    with describe_source_errors(target.source, has_table=target.base is not None):
        return ingest_files(target, root, file_changes, load_processed_files)
