"""Release quarantined rows: read them through their source again, as they are or corrected. Publishes one commit.

Good rows are added to the table as rows of the file that they came from: if that file changes, they are replaced with
its other rows. Rows that are still bad stay in quarantine, with the current reason.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.ingest.bad_rows import QuarantineTarget
from runnel.connect.ingest.batch_reader import IngestBatch, read_batch
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.release.correction_file import is_csv
from runnel.connect.ingest.release.publish_release import ReleaseBase, publish_release, read_base
from runnel.connect.ingest.release.release_files import (
    PreparedRelease,
    StillBadRow,
    check_owners,
    check_row_count,
    make_unchanged_source,
    prepare_release,
)
from runnel.connect.ingest.release.release_origin import OriginRestorer, ReleaseFile
from runnel.connect.ingest.release.release_units import (
    EXAMPLE_COUNT,
    PreparedUnit,
    ReleasePreparer,
    divide_entries,
)
from runnel.connect.ingest.shared_scratch import SharedScratch, open_scratch
from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import Source
from runnel.errors import Mistake
from runnel.lake.history.commits import Commit
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import drop_history, load_metadata
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import retry_on_conflict
from runnel.lake.work_runner import ChooseRunner, WorkRunner, run_in_process
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True)
class ReleaseResult:
    """How many rows were to be released, how many the table accepted, and how many are still bad.

    `still_bad` are the bad rows, or the first thousand of those that were not corrected, with their current reason.
    `missing` counts the rows that stay in quarantine because the corrected file does not have them, `unknown` the rows
    of that file that are not in quarantine any more.
    """

    rows: int
    accepted: int
    bad: int
    commit: Commit | None
    still_bad: tuple[StillBadRow, ...] = ()
    missing: int = 0
    unknown: int = 0


def release_corrected_rows(
    store: "Store",
    source: Source,
    root: Path,
    chosen_rows: Sequence[QuarantinedRow],
    corrected: Path,
    *,
    branch: str = "main",
) -> ReleaseResult:
    """Read the rows of the file `corrected` through the source, in the place of `chosen_rows`."""
    with temp_dirs.create_scoped("release") as folder, acquire_pin(store.db, "write") as pin:
        prepared = prepare_release(source, root, chosen_rows, corrected, Path(folder))
        if not prepared.files:
            return _describe_corrected(prepared, 0, (), None)
        return retry_on_conflict(lambda: _release_corrected_once(store, prepared, branch, pin), _ATTEMPTS)


def _release_corrected_once(store: "Store", prepared: PreparedRelease, branch: str, pin: str) -> ReleaseResult:
    source, base = prepared.source, read_base(store, prepared.source, branch)
    target = IngestTarget(store, source, base.table_location, run="release")
    batch = read_batch(target, prepared.files, from_scratch=base.table is None, owners=prepared.owners)
    prepared.check_counts(batch.written.rows, batch.dropped)
    still_bad = tuple(prepared.restore_origin(row) for row in batch.set_aside.rows)
    if base.quarantine is None or (not batch.written.rows and batch.dropped == len(prepared.replaced_rows)):
        return _describe_corrected(prepared, 0, still_bad, None)
    staged_quarantine = quarantine.replace_rows(
        store, base.quarantine.location, prepared.replaced_rows, [bad_row.row for bad_row in still_bad]
    )
    commit = publish_release(store, source, base, batch, prepared.owners, staged_quarantine=staged_quarantine, pin=pin)
    return _describe_corrected(prepared, batch.written.rows, still_bad, commit)


def _describe_corrected(
    prepared: PreparedRelease, accepted: int, still_bad: tuple[StillBadRow, ...], commit: Commit | None
) -> ReleaseResult:
    all_bad = tuple(sorted((*still_bad, *prepared.uncorrected), key=lambda bad_row: bad_row.line or 0))
    rows = len(prepared.replaced_rows) + len(prepared.uncorrected)
    return ReleaseResult(rows, accepted, len(all_bad), commit, all_bad, prepared.missing, prepared.unknown)


def release_unchanged_rows(
    store: "Store",
    source: Source,
    root: Path,
    file: str | None = None,
    *,
    branch: str = "main",
    choose_runner: ChooseRunner = run_in_process,
) -> ReleaseResult:
    """Read quarantined rows through the source as they are; only those of `file`, or the end of its path.

    The result counts no rows if there are none.
    """
    with acquire_pin(store.db, "write") as pin:
        return retry_on_conflict(
            lambda: _release_unchanged_once(
                _UnchangedRelease(store, source, root, read_base(store, source, branch), choose_runner), file, pin
            ),
            _ATTEMPTS,
        )


def _release_unchanged_once(attempt: "_UnchangedRelease", file: str | None, pin: str) -> ReleaseResult:
    store, source, base = attempt.store, attempt.source, attempt.base
    if base.quarantine is None:
        return ReleaseResult(0, 0, 0, None)
    names = quarantine.list_source_files(store, base.quarantine.location)
    runner = attempt.choose_runner_for(names)
    with _open_scratch(store, source, runner) as scratch:
        chosen_file = quarantine.find_path(file, names) if file is not None else None
        units = attempt.prepare(runner, chosen_file, scratch)
        uncorrected = sum(unit.uncorrected for unit in units)
        release_files = _name_files([release_file for unit in units for release_file in unit.files])
        rows = sum(release_file.rows for release_file in release_files.values())
        batch = attempt.read(runner, release_files) if release_files else None
    bad = uncorrected + (batch.dropped if batch is not None else 0)
    examples = [
        *(batch.set_aside.examples if batch is not None else ()),
        *(row for unit in units for row in unit.examples),
    ]
    still_bad = tuple(StillBadRow(row) for row in examples[:EXAMPLE_COUNT])
    if batch is None or batch.dropped == rows:
        return ReleaseResult(rows + uncorrected, 0, bad, None, still_bad)
    commit = publish_release(
        store,
        make_unchanged_source(source),
        base,
        batch,
        _map_owners(release_files),
        staged_quarantine=attempt.stage_quarantine(units, batch),
        pin=pin,
    )
    return ReleaseResult(rows + uncorrected, batch.written.rows, bad, commit, still_bad)


@dataclass(frozen=True)
class _UnchangedRelease:
    """An attempt to release rows as they are: all its steps start from the same state of the branch."""

    store: "Store"
    source: Source
    root: Path
    base: ReleaseBase
    choose_runner: ChooseRunner

    @cached_property
    def metadata(self) -> "TableMetadata":
        """Return the metadata of the quarantine table."""
        return load_metadata(self.store, self._quarantine_location)

    @property
    def _quarantine_location(self) -> str:
        assert self.base.quarantine is not None
        return self.base.quarantine.location

    @cached_property
    def entries(self) -> tuple[FileEntry, ...]:
        """Return the data files of the quarantine table, and its deletes."""
        return tuple(read_entries(self.store, self.metadata))

    def choose_runner_for(self, names: Collection[str]) -> WorkRunner:
        """Return where rows are read; the layout of CSV rows is in the files that they came from."""
        paths = [path for name in names if (path := self.root / name).is_file()] if is_csv(self.source) else []
        byte_count = sum(entry.file.file_size_in_bytes for entry in self.entries)
        return self.choose_runner(byte_count, map(str, paths))

    def prepare(self, runner: WorkRunner, file: str | None, scratch: SharedScratch) -> list[PreparedUnit]:
        """Write the rows to files that the source can read."""
        source = self.source if is_csv(self.source) else make_unchanged_source(self.source)
        preparer = ReleasePreparer(source, self.root, file, self.store.files, drop_history(self.metadata), scratch)
        return runner.run(preparer, divide_entries(self.entries))

    def read(self, runner: WorkRunner, release_files: Mapping[str, ReleaseFile]) -> IngestBatch:
        """Read the files; raise if they did not have exactly one row for each row that leaves the quarantine."""
        target = IngestTarget(self.store, make_unchanged_source(self.source), self.base.table_location, run="release")
        files = [LocalFile(name, file.location, file.bytes, 0.0) for name, file in release_files.items()]
        restorer = OriginRestorer(release_files, self.store.files)
        quarantine_target = QuarantineTarget(self.metadata, restorer, EXAMPLE_COUNT)
        is_new, owners = self.base.table is None, _map_owners(release_files)
        if runner.place.name == EXECUTORS:
            from runnel.connect.ingest.units.unit_batch import read_batch_in_units

            batch = read_batch_in_units(
                target, files, runner, owners, from_scratch=is_new, quarantine=quarantine_target
            )
        else:
            batch = read_batch(target, files, from_scratch=is_new, owners=owners, quarantine=quarantine_target)
        if batch.unread_reasons:
            raise Mistake("RELEASE_ROW", batch.unread_reasons[0], fix="correct these rows, and release the file")
        expected = sum(file.rows for file in release_files.values())
        check_row_count(expected, batch.written.rows + batch.dropped, files[0].name)
        return batch

    def stage_quarantine(self, units: Sequence[PreparedUnit], batch: IngestBatch) -> str:
        """Stage the quarantine table without the rows that the table accepted, and return its location."""
        removed_paths = {path for unit in units for path in unit.removed}
        added = [file for unit in units for file in unit.retained]
        return stage_version(
            self.store,
            self._quarantine_location,
            VersionEdit(
                added=[*added, *batch.set_aside.files],
                removed=[entry for entry in self.entries if entry.path in removed_paths],
            ),
        )


@contextmanager
def _open_scratch(store: "Store", source: Source, runner: WorkRunner) -> Iterator[SharedScratch]:
    """Yield a folder for the files to read: of the warehouse, or of this machine if they are read here."""
    if runner.place.name == EXECUTORS:
        with open_scratch(store.files, "release", source.table) as scratch:
            yield scratch
        return
    with temp_dirs.create_scoped("release") as folder:
        yield SharedScratch(store.files, folder)


def _name_files(release_files: Sequence[ReleaseFile]) -> dict[str, ReleaseFile]:
    """Return the files to read by the name that errors have: that of the source file, with a number if it has several.

    Raises if files of the source had the same name.
    """
    check_owners((release_file.origin, release_file.owner) for release_file in release_files)
    counts: dict[str, int] = {}
    named: dict[str, ReleaseFile] = {}
    for release_file in release_files:
        number = counts[release_file.origin] = counts.get(release_file.origin, 0) + 1
        named[release_file.origin if number == 1 else f"{release_file.origin} (part {number})"] = release_file
    return named


def _map_owners(release_files: Mapping[str, ReleaseFile]) -> dict[str, str]:
    return {name: file.owner for name, file in release_files.items() if file.owner}
