"""List the files that a source's glob matches, with their sizes and times. Never opens one."""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from runnel.errors import RunnelError, nearest
from runnel.names import shown

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".inprogress", "._copying_", "~")


@dataclass(frozen=True)
class Present:
    """A file that is there. `path` is relative to the project's folder where the glob is."""

    path: str
    size: int
    modified_ns: int


def is_address(path: str) -> bool:
    """Tell whether a glob or a path names an object store.

    >>> is_address("s3://bucket/a/*.csv"), is_address("data/*.csv"), is_address("/data/a.csv")
    (True, False, False)
    """
    return _ADDRESS.match(path) is not None


def present(root: Path, pattern: str) -> dict[str, Present]:
    """Return the files that a glob matches, by path and sorted.

    Left out are hidden files, folders, broken links, and what by its name is not finished or no data: `_SUCCESS`.
    """
    return {file.path: file for file in sorted(_present(root, pattern), key=lambda file: file.path)}


def is_passed_over(path: str, pattern: str) -> bool:
    """Tell whether a file is hidden or not finished, by its name; folders too, unless the glob spells them out.

    >>> is_passed_over("data/_temporary/0/a.csv", "data/**/*.csv"), is_passed_over("_in/a.csv", "_in/*")
    (True, False)
    >>> is_passed_over("data/_year=2026/a.csv", "data/**"), is_passed_over("data/a.csv.part", "data/*")
    (False, True)
    """
    spelled = pattern.split("/")
    *folders, name = path.split("/")
    if name.lower().endswith(_UNFINISHED) and not pattern.lower().endswith(_UNFINISHED):
        return True
    return any(
        part[:1] in "._" and "=" not in part and part not in spelled for part in (*folders, name) if part != ".."
    )


def _present(root: Path, pattern: str) -> Iterator[Present]:
    for name in glob.iglob(pattern, root_dir=root, recursive=True):  # noqa: PTH207 - pathlib's follows no links in **
        path = os.path.normpath(name)
        if is_passed_over(path, pattern):
            continue
        try:
            found = os.stat(f"{root}/{path}" if path[0] != "/" else path)  # noqa: PTH116
        except OSError:  # gone since, or a link to nothing
            continue
        if S_ISREG(found.st_mode):
            _printable(path)
            yield Present(path, found.st_size, found.st_mtime_ns)


def _printable(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        what = f"the name of the file {shown(path)} is not UTF-8"
        raise RunnelError("SOURCE_FILE_NAME", what, fix="rename the file") from error


def nothing(root: Path, pattern: str) -> str:
    """Say that a glob matches no file, with what there is instead."""
    if (root / pattern).is_dir():
        return f"{shown(pattern)} is a folder; write {shown(pattern.rstrip('/') + '/*')} for the files in it"
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or (not (root / folder).is_dir() and folder != folder.parent):
        folder = folder.parent
    if not (root / folder).is_dir():
        return f"no file matches {shown(pattern)}; there is no folder {shown(str(folder))}"
    try:
        inside = sorted(entry.name for entry in (root / folder).iterdir() if not entry.name.startswith("."))
    except OSError:
        inside = []
    close = nearest(Path(pattern).name, inside) or (inside[0] if inside else None)
    called = "the project's folder" if str(folder) == "." else f"the folder {folder}"
    return f"no file matches {shown(pattern)}; {called} " + (f"has `{close}`" if close else "is empty")
