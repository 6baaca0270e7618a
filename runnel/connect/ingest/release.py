"""Release quarantined rows: read them through their source again, as they are or corrected. Publishes one commit.

Good rows are added to the table as rows of the file that they came from: if that file changes, they are replaced with
its other rows. Rows that are still bad stay in quarantine, with the current reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.csv_records import choose_delimiter, read_records
from runnel.connect.files.file_patterns import LocalFile, detect_format, make_local_file
from runnel.connect.ingest.batch_reader import IngestBatch, read_batch
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.read_request import build_request
from runnel.connect.load import quarantine
from runnel.connect.load.quarantine import QuarantinedRow
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source, quarantine_table_of
from runnel.errors import Mistake, plural
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_position
from runnel.lake.history.commits import Commit, CommitChange, read_sequence
from runnel.lake.iceberg.data_file_owners import make_owner_prefix, read_file_name, read_owner_prefix
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True)
class ReleaseResult:
    """How many rows were read again, how many the table accepted, and how many are still bad."""

    rows: int
    accepted: int
    bad: int
    commit: Commit | None


def release_rows(
    store: "Store",
    source: Source,
    root: Path,
    chosen_rows: Sequence[QuarantinedRow],
    corrected: Path | None = None,
    *,
    branch: str = "main",
) -> ReleaseResult:
    """Read `chosen_rows` through the source again, or in their place the rows of the file `corrected`."""
    with temp_dirs.create_scoped("release") as folder, acquire_pin(store.db, "write") as pin:
        files, release_source = _prepare_files(source, root, chosen_rows, corrected, Path(folder))
        return retry_on_conflict(
            lambda: _release_once(store, release_source, files, chosen_rows, branch=branch, pin=pin), _ATTEMPTS
        )


def _release_once(
    store: "Store",
    source: Source,
    files: Sequence[LocalFile],
    chosen_rows: Sequence[QuarantinedRow],
    *,
    branch: str,
    pin: str,
) -> ReleaseResult:
    planned, commit = store.db.read(read_sequence), store.commit(branch)
    state, quarantine_table = store.state(branch), quarantine_table_of(source.table)
    table_version, quarantine_version = state.get(source.table), state[quarantine_table]
    owners = {row.file: row.owner or make_owner_prefix(row.file) for row in chosen_rows if row.file is not None}
    ingest_target = IngestTarget(store, source, table_version.location if table_version else None, run="release")
    batch = read_batch(ingest_target, files, from_scratch=table_version is None, owners=owners)
    rows = sum(file.record_count for data_files in batch.data_files.values() for file in data_files)
    staged_quarantine = quarantine.replace_rows(
        store, quarantine_version.location, chosen_rows, batch.quarantined_rows, owners
    )
    changes = (
        [CommitChange(quarantine_table, quarantine_version.location, staged_quarantine, staged_quarantine)]
        if staged_quarantine != quarantine_version.location
        else []
    )
    if rows:
        changes.append(_stage_table_change(store, source, batch, table_version))
    if not changes or (not rows and batch.dropped == len(chosen_rows)):
        return ReleaseResult(len(chosen_rows), 0, batch.dropped, None)
    message = f"release {plural(rows, 'row')} of {source.table}"
    processed_files = store.db.read(lambda connection: read_position(connection, commit, source.table)) if rows else {}
    live_files = _list_data_files(store, table_version) if rows else ()
    draft = CommitDraft(
        branch,
        message,
        store.author,
        tuple(changes),
        kind="release",
        expected_head=commit.id,
        planned_sequence=planned,
        pin=pin,
        processed_files=tuple(
            (source.table, entry) for entry in _extend_processed_files(processed_files, batch, owners, live_files)
        ),
    )
    return ReleaseResult(len(chosen_rows), rows, batch.dropped, publish(store.db, draft))


def _stage_table_change(
    store: "Store", source: Source, batch: IngestBatch, table_version: TableVersion | None
) -> CommitChange:
    added = [file for files in batch.data_files.values() for file in files]
    target = batch.target
    location = stage_version(store, target.location, VersionEdit(added=added, updates=target.updates))
    names = sorted(file.file_path.rpartition("/")[2] for file in added)
    content = content_of_files(table_version.content if table_version else None, [f"released:{name}" for name in names])
    return CommitChange(source.table, table_version.location if table_version else None, location, content)


def _list_data_files(store: "Store", version: TableVersion | None) -> tuple[str, ...]:
    return (
        tuple(entry.path for entry in read_entries(store, load_metadata(store, version.location)) if entry.is_data)
        if version
        else ()
    )


def _extend_processed_files(
    processed_files: Mapping[str, ProcessedFile],
    batch: IngestBatch,
    owners: Mapping[str, str],
    live_files: Sequence[str],
) -> tuple[ProcessedFile, ...]:
    """Return the updated records of source files whose rows are now in more data files, under their current names.

    `live_files` are the data files that the table had. After a revert they may stem from an earlier read of a file.
    """
    by_owner = {owner: entry for entry in processed_files.values() for owner in entry.all_owners}
    added_files = {
        by_owner[owners[path]].path: data_files
        for path, data_files in batch.data_files.items()
        if owners.get(path) in by_owner
    }
    return tuple(
        replace(
            processed_files[path],
            files=(*_list_owned_files(processed_files, path, live_files), *(file.file_path for file in data_files)),
            owners=processed_files[path].all_owners,
        )
        for path, data_files in added_files.items()
    )


def _list_owned_files(processed_files: Mapping[str, ProcessedFile], path: str, live_files: Sequence[str]) -> list[str]:
    """Return the data files that hold rows of a file: those recorded, and those with one of its owner prefixes."""
    files_of_others = {
        read_file_name(file)
        for other in processed_files.values()
        if other.path != path and not other.is_removed
        for file in other.files
    }
    recorded, owned = {read_file_name(file) for file in processed_files[path].files}, processed_files[path].all_owners
    own_files = [file for file in live_files if read_file_name(file) in recorded or read_owner_prefix(file) in owned]
    return [file for file in own_files if read_file_name(file) not in files_of_others]


def _prepare_files(
    source: Source, root: Path, chosen_rows: Sequence[QuarantinedRow], corrected: Path | None, folder: Path
) -> tuple[list[LocalFile], Source]:
    """Return the files to read, named like the files that the rows came from, and the source that reads them."""
    for name in {row.file for row in chosen_rows}:
        if len({row.owner for row in chosen_rows if row.file == name}) > 1:
            what = f"several files were called {name} when their rows were set aside, and have other names by now"
            raise Mistake("RELEASE_FILES", what, fix="correct the rows in the files themselves, and run again")
    if corrected is None:
        return _write_raw_rows(source, root, chosen_rows, folder)
    names = {row.file for row in chosen_rows}
    if len(names) > 1:
        what = f"the rows come from {len(names):,} files, and corrected ones would belong to none of them"
        raise Mistake("RELEASE_FILES", what, fix="release them file by file: --file NAME")
    if not corrected.is_file():
        raise Mistake("RELEASE_NO_FILE", f"there is no file {corrected}", fix="name the file with the corrected rows")
    file_format = detect_format([make_local_file(str(corrected), corrected)])
    return [make_local_file(names.pop() or str(source.table), corrected)], _make_release_source(source, file_format)


def _write_raw_rows(
    source: Source, root: Path, chosen_rows: Sequence[QuarantinedRow], folder: Path
) -> tuple[list[LocalFile], Source]:
    origin = source.origin
    is_csv = isinstance(origin, Files) and origin.format == "csv"
    lines_by_file: dict[str, list[str]] = {}
    for row in chosen_rows:
        lines_by_file.setdefault(row.file or str(source.table), []).append(row.raw or "")
    files = []
    for number, (name, lines) in enumerate(lines_by_file.items()):
        source_file = LocalFile(name, str(root / name), 0, 0.0)
        csv_extension = ".tsv" if source_file.extension == ".tsv" else ".csv"  # it tells the delimiter
        path = folder / f"{number}{csv_extension if is_csv else '.jsonl'}"
        header_lines = [_read_header(source, source_file)] if is_csv else []
        path.write_text("\n".join([*header_lines, *lines]) + "\n", encoding="utf-8", errors="surrogateescape")
        files.append(make_local_file(name, path))
    return files, _make_release_source(source, "csv" if is_csv else "jsonl")


def _read_header(source: Source, file: LocalFile) -> str:
    """Return the text of a CSV file's header; the declared columns if it has none, or can't be read any more."""
    options = build_request(source, ()).csv
    if options.header and Path(file.path).is_file():
        try:
            with describe_read_errors(file.name, file.path):
                header = next(read_records(file, options), None)
        except Mistake:
            if not options.names:
                raise
        else:
            return header.text.rstrip("\r\n") if header is not None else ""
    return choose_delimiter(file, options).join(options.names)


def _make_release_source(source: Source, file_format: str) -> Source:
    options = tuple(
        (name, value)
        for name, value in (source.origin.options if isinstance(source.origin, Files) else ())
        if file_format == "csv" and name not in ("header", "encoding", "skip")  # it is UTF-8 and starts with a header
    )
    release_files = Files(str(source.table), file_format, source.origin.schema, options=options)  # type: ignore[arg-type]
    return replace(source, origin=release_files, on_bad="quarantine")
