"""List the files that a source's glob matches, with their sizes and times. Never opens one."""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from runnel.errors import RunnelError, find_nearest
from runnel.names import quote_value

_OBJECT_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_UNFINISHED_SUFFIXES = (
    ".tmp",
    ".temp",
    ".part",
    ".partial",
    ".filepart",
    ".crdownload",
    ".inprogress",
    "._copying_",
    "~",
)


@dataclass(frozen=True)
class ListedSourceFile:
    """A file that the glob matches. `path` is relative to the project's folder if the glob is."""

    path: str
    size: int
    modified_ns: int


def is_object_url(path: str) -> bool:
    """Tell whether a glob or a path is a URL of an object store.

    >>> is_object_url("s3://bucket/a/*.csv"), is_object_url("data/*.csv"), is_object_url("/data/a.csv")
    (True, False, False)
    """
    return _OBJECT_URL.match(path) is not None


def list_files(root: Path, pattern: str) -> dict[str, ListedSourceFile]:
    """Return the files that a glob matches, by path and sorted.

    Skips hidden files, folders, broken links, and files that by their names are unfinished or no data (`_SUCCESS`).
    """
    return {file.path: file for file in sorted(_iterate_files(root, pattern), key=lambda file: file.path)}


def find_first_file(root: Path, pattern: str) -> ListedSourceFile | None:
    """Return the first, by path, of some files that a glob matches, without listing all of a large folder."""
    return min(islice(_iterate_files(root, pattern), 100), key=lambda file: file.path, default=None)


def is_ignored(path: str, pattern: str) -> bool:
    """Tell whether a file or one of its folders is hidden or unfinished, by its name, unless the glob spells it out.

    >>> is_ignored("data/_temporary/0/a.csv", "data/**/*.csv"), is_ignored("_in/a.csv", "_in/*")
    (True, False)
    >>> is_ignored("data/_year=2026/a.csv", "data/**"), is_ignored("data/a.csv.part", "data/*")
    (False, True)
    """
    pattern_parts = pattern.split("/")
    *folders, name = path.split("/")
    if name.lower().endswith(_UNFINISHED_SUFFIXES) and not pattern.lower().endswith(_UNFINISHED_SUFFIXES):
        return True
    return any(
        part[:1] in "._" and "=" not in part and part not in pattern_parts for part in (*folders, name) if part != ".."
    )


def _iterate_files(root: Path, pattern: str) -> Iterator[ListedSourceFile]:
    for name in glob.iglob(pattern, root_dir=root, recursive=True):  # noqa: PTH207 - pathlib's follows no links in **
        path = os.path.normpath(name)
        if is_ignored(path, pattern):
            continue
        try:
            file_stat = os.stat(f"{root}/{path}" if path[0] != "/" else path)  # noqa: PTH116
        except OSError:  # removed in the meantime, or a broken link
            continue
        if S_ISREG(file_stat.st_mode):
            _check_encodable(path)
            yield ListedSourceFile(path, file_stat.st_size, file_stat.st_mtime_ns)


def _check_encodable(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        what = f"the name of the file {quote_value(path)} is not UTF-8"
        raise RunnelError("SOURCE_FILE_NAME", what, fix="rename the file") from error


def describe_no_match(root: Path, pattern: str) -> str:
    """Return a message that a glob matches no file, with what exists instead."""
    if (root / pattern).is_dir():
        return (
            f"{quote_value(pattern)} is a folder; write {quote_value(pattern.rstrip('/') + '/*')} for the files in it"
        )
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or (not (root / folder).is_dir() and folder != folder.parent):
        folder = folder.parent
    if not (root / folder).is_dir():
        return f"no file matches {quote_value(pattern)}; there is no folder {quote_value(str(folder))}"
    try:
        entry_names = sorted(entry.name for entry in (root / folder).iterdir() if not entry.name.startswith("."))
    except OSError:
        entry_names = []
    close = find_nearest(Path(pattern).name, entry_names) or (entry_names[0] if entry_names else None)
    folder_label = "the project's folder" if str(folder) == "." else f"the folder {folder}"
    return f"no file matches {quote_value(pattern)}; {folder_label} " + (f"has `{close}`" if close else "is empty")
