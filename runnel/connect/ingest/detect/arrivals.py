"""Compare a source's files with those read before: which are new, changed, removed or renamed.

Hashes a file only if its path, size or time differs from its record. Imports nothing heavy: every plan calls it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from runnel.connect.ingest.detect.digests import DigestCache, is_large
from runnel.connect.ingest.detect.file_changes import FileChanges, RowIdentity, SourceFile
from runnel.connect.ingest.detect.listing import ListedSourceFile, describe_no_match, is_object_url, list_files
from runnel.connect.ingest.detect.open_writers import is_being_written
from runnel.connect.ingest.detect.row_inheritance import classify_files
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.flow_state.ingest_position import ProcessedFile

_IdentifyRows = Callable[[ListedSourceFile, str], RowIdentity]
"""Returns the identity of the rows of a file with a digest."""


def find_file_changes(
    root: Path,
    source: Source,
    read_options: str,
    processed_files: Mapping[str, ProcessedFile],
    content: str | None,
    *,
    cache: DigestCache,
    storage: Mapping[str, str] | None = None,
) -> FileChanges:
    """Return the changes of a source's files since the table's current `content`; None if there is no table.

    `read_options` identify how files are read; if they changed, every file counts as changed. Without a table no file
    counts as read. `storage` is for files in an object store. Raises if a file that has to be hashed can't be read.
    """
    files = source.origin
    assert isinstance(files, Files)
    previous_files = processed_files if content is not None else {}
    forgotten = tuple(processed_files.values()) if content is None else ()
    identify_rows = partial(_identify_rows, read_options, files.format)
    checked_at_ns = time.time_ns()
    is_remote = is_object_url(files.glob)
    listed_files = (
        _list_objects(files.glob, storage or {})
        if is_remote
        else list_files(root, files.glob, follow_links=files.follow_links)
    )
    live_records = {path: old for path, old in previous_files.items() if not old.is_removed}
    vanished = [old for path, old in live_records.items() if path not in listed_files]
    differing = [
        file for path, file in listed_files.items() if not _is_unchanged(file, live_records.get(path), identify_rows)
    ]
    unfinished = () if is_remote else tuple(f.path for f in differing if is_being_written(root / f.path, f.modified_ns))
    differing = [file for file in differing if file.path not in unfinished]
    digests = _compute_digests(differing) if is_remote else cache.compute_digests(root, differing, checked_at_ns)
    source_files = [_make_source_file(file, digests[file.path], identify_rows) for file in differing]
    touched = tuple(
        (live_records[source_file.path], replace(source_file, owners=live_records[source_file.path].all_owners))
        for source_file in source_files
        if _is_touched(source_file, live_records.get(source_file.path))
    )
    touched_paths = {source_file.path for _, source_file in touched}
    file_changes = classify_files(
        [source_file for source_file in source_files if source_file.path not in touched_paths],
        previous_files,
        vanished,
        files.removed,
    )
    return replace(
        file_changes,
        touched=touched,
        unchanged=len(listed_files) - len(file_changes.files_to_read) - len(file_changes.renamed) - len(unfinished),
        content_before=content,
        content=_compute_content(content, file_changes, live_records.values()),
        checked_at_ns=checked_at_ns,
        problem=None if listed_files else _describe_no_match(root, files.glob),
        unfinished=unfinished,
        forgotten=forgotten,
        missing=_find_missing_files(vanished, file_changes),
    )


def _find_missing_files(vanished: Iterable[ProcessedFile], file_changes: FileChanges) -> tuple[str, ...]:
    """Return the paths of vanished files whose rows stay: they are not removed, and no other file took them over."""
    moved_paths = {old.path for old in file_changes.replaced_files} | {old.path for old, _ in file_changes.renamed}
    return tuple(old.path for old in vanished if old.path not in moved_paths)


def _list_objects(pattern: str, storage: Mapping[str, str]) -> dict[str, ListedSourceFile]:
    from runnel.connect.ingest.detect.object_listing import list_objects

    return list_objects(pattern, storage)


def _compute_digests(files: Iterable[ListedSourceFile]) -> dict[str, str]:
    from runnel.connect.ingest.detect.object_listing import compute_object_digest

    return {file.path: compute_object_digest(file) for file in files}


def _describe_no_match(root: Path, pattern: str) -> str:
    return f"no object matches {pattern}" if is_object_url(pattern) else describe_no_match(root, pattern)


def _is_unchanged(file: ListedSourceFile, old: ProcessedFile | None, identify_rows: _IdentifyRows) -> bool:
    """Tell whether a file equals its record, so that it need not be hashed."""
    if old is None or (file.size, file.modified_ns) != (old.size, old.modified_ns):
        return False
    identity, old_identity = identify_rows(file, old.sha256), RowIdentity.from_text(old.identity)
    if is_large(file.size) and not old_identity.includes_path:  # read by a version that hashed all of it
        return old_identity.has_same_options(identity)
    return old_identity == identity


def _make_source_file(file: ListedSourceFile, sha256: str, identify_rows: _IdentifyRows) -> SourceFile:
    return SourceFile(file.path, file.size, file.modified_ns, sha256, identify_rows(file, sha256))


def _identify_rows(read_options: str, format_name: str, file: ListedSourceFile, digest: str) -> RowIdentity:
    """Return the identity of a file's rows; that of a large file includes its path, since its digest covers not all.

    So a large file that was renamed is read again, in the place of its old rows.
    """
    includes_path = format_name == "binary" or is_large(file.size)
    return RowIdentity.of_file(file.path, digest, read_options, includes_path=includes_path)


def _is_touched(source_file: SourceFile, old: ProcessedFile | None) -> bool:
    return old is not None and old.identity == source_file.identity


def _compute_content(
    before: str | None, file_changes: FileChanges, live_records: Iterable[ProcessedFile]
) -> str | None:
    """Return the content id after the changes, or None if the table may lack the rows that are to be removed.

    A revert does not change the records of files, so after one the table may have other rows than the records say:
    also rows of files that count as removed.
    """
    added = [source_file.identity for source_file in file_changes.files_to_read]
    removed = [old.identity for old in file_changes.replaced_files if not old.is_removed]
    if file_changes.replaced_files and before != content_of_files(None, (old.identity for old in live_records)):
        return None
    return content_of_files(before, added, removed)
