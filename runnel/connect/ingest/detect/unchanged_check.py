"""Check that files did not change since they were listed: else the rows read may be a mix of old and new ones."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runnel.connect.ingest.detect.digests import compute_digest, compute_settled_ns, is_settled
from runnel.connect.ingest.detect.file_changes import FileChanges, SourceFile
from runnel.connect.ingest.detect.listing import ListedSourceFile, is_object_url
from runnel.errors import RunnelError

_MAX_WAIT_NS = 2_000_000_000


def find_changed_files(root: Path, file_changes: FileChanges, storage: Mapping[str, str]) -> frozenset[str]:
    """Return the paths of files that changed since they were listed.

    A file that was written just before it was listed may have been written again without a new time: it is hashed once
    more, as soon as another write would change its time.
    """
    remote_files = [source_file for source_file in file_changes.files_to_read if is_object_url(source_file.path)]
    changed_paths, recent_files = _find_changed_remote_files(remote_files, storage), []
    for source_file in file_changes.files_to_read:
        if is_object_url(source_file.path):
            continue
        if not _is_unchanged(root, source_file):
            changed_paths.add(source_file.path)
        elif not is_settled(source_file.modified_ns, file_changes.checked_at_ns):
            recent_files.append(source_file)
    if recent_files:
        wait_ns = max(compute_settled_ns(source_file.modified_ns) for source_file in recent_files) - time.time_ns()
        if 0 < wait_ns <= _MAX_WAIT_NS:
            time.sleep(wait_ns / 1e9)
    for source_file in recent_files:
        listed_file = ListedSourceFile(source_file.path, source_file.size, source_file.modified_ns)
        if not _is_unchanged(root, source_file) or compute_digest(root, listed_file) != source_file.sha256:
            changed_paths.add(source_file.path)
    return frozenset(changed_paths)


def _find_changed_remote_files(remote_files: Sequence[SourceFile], storage: Mapping[str, str]) -> set[str]:
    if not remote_files:
        return set()
    from runnel.connect.ingest.detect.object_listing import find_changed_objects

    return find_changed_objects(
        ((source_file.path, source_file.size, source_file.modified_ns) for source_file in remote_files), storage
    )


def _is_unchanged(root: Path, source_file: SourceFile) -> bool:
    try:
        file_stat = os.stat(root / source_file.path)  # noqa: PTH116
    except OSError:
        return False
    return (file_stat.st_size, file_stat.st_mtime_ns) == (source_file.size, source_file.modified_ns)


def describe_changed_file(path: str) -> RunnelError:
    """Return the error for files that kept changing while they were read."""
    what = f"{path} changed while it was read; nothing of this run is visible"
    fix = "run it again when its writer has finished; a writer that renames a finished file into place avoids this"
    return RunnelError("SOURCE_FILE_CHANGED", what, at=path, fix=fix)
