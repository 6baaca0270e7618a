"""Compare a source's files with what was read of them: what is new, changed, gone, renamed.

Looks into a file only where its path, size or time is not what was seen. Imports nothing heavy: every plan asks.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from runnel.connect.ingest.detect.digests import DigestCache
from runnel.connect.ingest.detect.file_changes import Arrival, Found
from runnel.connect.ingest.detect.listing import Present, is_address, nothing, present
from runnel.connect.ingest.detect.open_writers import is_written
from runnel.connect.ingest.detect.row_inheritance import sort_arrivals
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.lake.diff.content_id import of_files
from runnel.lake.flow_state.ingest_position import Seen


def arrivals(
    root: Path,
    source: Source,
    how: str,
    seen: Mapping[str, Seen],
    content: str | None,
    cache: DigestCache,
    storage: Mapping[str, str] | None = None,
) -> Found:
    """Return what the files of a source mean for its table, whose content now is `content`, None where there is none.

    `how` says how files are read; where it changed, every file counts as changed. Without a table nothing counts as
    seen. `storage` is for files in an object store. Raises where a file that has to be looked into can't be read.
    """
    files = source.origin
    assert isinstance(files, Files)
    known = seen if content is not None else {}
    forgotten = tuple(seen.values()) if content is None else ()
    how = f"{how}:by path" if files.format == "binary" else how
    looked_ns = time.time_ns()
    is_away = is_address(files.glob)
    there = _objects(files.glob, storage or {}) if is_away else present(root, files.glob)
    live = {path: old for path, old in known.items() if not old.is_gone}
    vanished = [old for path, old in live.items() if path not in there]
    differing = [file for path, file in there.items() if not _same(file, live.get(path), how)]
    left = () if is_away else tuple(f.path for f in differing if is_written(root / f.path, f.modified_ns))
    differing = [file for file in differing if file.path not in left]
    digests = _digests(differing) if is_away else cache.digests(root, differing, looked_ns)
    looked = [_arrival(file, digests[file.path], how) for file in differing]
    touched = tuple(
        (live[each.path], replace(each, owners=live[each.path].owned))
        for each in looked
        if _is_touched(each, live.get(each.path))
    )
    settled = {each.path for _, each in touched}
    found = sort_arrivals([each for each in looked if each.path not in settled], known, vanished, files.removed)
    return replace(
        found,
        touched=touched,
        unchanged=len(there) - len(found.reads) - len(found.renamed) - len(left),
        before=content,
        content=_content(content, found, live.values()),
        looked_ns=looked_ns,
        problem=None if there else _nothing(root, files.glob),
        left=left,
        forgotten=forgotten,
    )


def _objects(pattern: str, storage: Mapping[str, str]) -> dict[str, Present]:
    from runnel.connect.ingest.detect.object_listing import objects

    return objects(pattern, storage)


def _digests(files: Iterable[Present]) -> dict[str, str]:
    from runnel.connect.ingest.detect.object_listing import digest

    return {file.path: digest(file) for file in files}


def _nothing(root: Path, pattern: str) -> str:
    return f"no object matches {pattern}" if is_address(pattern) else nothing(root, pattern)


def _same(file: Present, old: Seen | None, how: str) -> bool:
    """Tell whether a file need not be looked into."""
    if old is None or (file.size, file.modified_ns) != (old.size, old.modified_ns):
        return False
    return old.identity == _identity(old.path, old.sha256, how)


def _identity(path: str, sha256: str, how: str) -> str:
    """Return what the rows of a file are; where they tell its path, they are others elsewhere."""
    told = f":{path}" if how.endswith(":by path") else ""
    return f"{hashlib.sha256((sha256 + told).encode()).hexdigest() if told else sha256}:{how}"


def _arrival(file: Present, sha256: str, how: str) -> Arrival:
    return Arrival(file.path, file.size, file.modified_ns, sha256, _identity(file.path, sha256, how))


def _is_touched(arrival: Arrival, old: Seen | None) -> bool:
    return old is not None and old.identity == arrival.identity


def _content(before: str | None, found: Found, live: Iterable[Seen]) -> str | None:
    """Return the content after what was found, or None where the table may not have the rows that are to go.

    After a revert the table has other rows than the position says, since the position stays: also those of files that
    count as removed.
    """
    added = [arrival.identity for arrival in found.reads]
    removed = [old.identity for old in found.replaced if not old.is_gone]
    if found.replaced and before != of_files(None, (old.identity for old in live)):
        return None
    return of_files(before, added, removed)
