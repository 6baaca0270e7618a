"""List the files that a source's glob matches, with their sizes and times. Never opens one."""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from runnel.errors import Mistake, RunnelError, find_nearest
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


def list_files(root: Path, pattern: str, *, follow_links: bool = False) -> dict[str, ListedSourceFile]:
    """Return the files that a glob matches, by path and sorted.

    Skips hidden files, folders, broken links, and files that by their names are unfinished or no data (`_SUCCESS`).
    Raises for a link that leads out of the folder that the glob names, unless `follow_links`.
    """
    files = _iterate_files(root, pattern, follow_links)
    return {file.path: file for file in sorted(files, key=lambda file: file.path)}


def find_first_file(root: Path, pattern: str, *, follow_links: bool = False) -> ListedSourceFile | None:
    """Return the first, by path, of some files that a glob matches, without listing all of a large folder."""
    return min(islice(_iterate_files(root, pattern, follow_links), 100), key=lambda file: file.path, default=None)


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


class _MatchedFolder:
    """The folder whose files a glob matches. Users who write files there must not choose what else is read."""

    def __init__(self, name: str, real_path: str) -> None:
        self.name = name
        self._real_path = real_path
        self._checked_folders: set[str] = set()

    @classmethod
    def of_pattern(cls, root: Path, pattern: str) -> "_MatchedFolder | None":
        """Return the folder before the first wildcard, wherever links to it lead; None for the path of one file."""
        if not glob.has_magic(pattern):
            return None
        names = list(takewhile(lambda name: not glob.has_magic(name), pattern.split("/")))
        name = "/".join(names) or ("/" if pattern.startswith("/") else ".")
        return cls(name, os.path.realpath(root / name))

    def check_inside(self, path: str, absolute_path: str, is_link: bool) -> None:
        """Raise if a file is, or lies behind, a link that leads out of the folder; costs nothing for most files."""
        parent = absolute_path.rpartition("/")[0]
        if not is_link and parent in self._checked_folders:
            return
        real_path = os.path.realpath(absolute_path)
        if os.path.commonpath((self._real_path, real_path)) != self._real_path:
            what = f"{quote_value(path)} is behind a link that leads out of {quote_value(self.name)}, to {real_path}"
            fix = "copy the file into the folder, or declare rn.files(..., follow_links=True) if you trust all links"
            raise Mistake("SOURCE_FILE_LINK", what, at=path, fix=fix)
        if not is_link:
            self._checked_folders.add(parent)


def _iterate_files(root: Path, pattern: str, follow_links: bool) -> Iterator[ListedSourceFile]:
    folder = None if follow_links else _MatchedFolder.of_pattern(root, pattern)
    for name in glob.iglob(pattern, root_dir=root, recursive=True):  # noqa: PTH207 - pathlib's follows no links in **
        path = os.path.normpath(name)
        if is_ignored(path, pattern):
            continue
        absolute_path = f"{root}/{path}" if path[0] != "/" else path
        try:
            file_stat = os.lstat(absolute_path)
            is_link = S_ISLNK(file_stat.st_mode)
            file_stat = os.stat(absolute_path) if is_link else file_stat  # noqa: PTH116
        except OSError:  # removed in the meantime, or a broken link
            continue
        if S_ISREG(file_stat.st_mode):
            _check_encodable(path)
            if folder is not None:
                folder.check_inside(path, absolute_path, is_link)
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
