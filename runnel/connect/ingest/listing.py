"""List the files that a source's glob matches, with their sizes and times. Never opens one."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from runnel.errors import RunnelError, nearest
from runnel.names import shown


@dataclass(frozen=True)
class Present:
    """A file that is there. `path` is relative to the project's folder where the glob is."""

    path: str
    size: int
    modified_ns: int


def present(root: Path, pattern: str) -> dict[str, Present]:
    """Return the files that a glob matches, by path and sorted; hidden ones, folders and broken links are left out."""
    return {file.path: file for file in sorted(_present(root, pattern), key=lambda file: file.path)}


def _present(root: Path, pattern: str) -> Iterator[Present]:
    for name in glob.iglob(pattern, root_dir=root, recursive=True):  # noqa: PTH207 - pathlib's follows no links in **
        path = os.path.normpath(name)
        if os.path.basename(path).startswith("."):  # noqa: PTH119
            continue
        try:
            found = os.stat(root / path)  # noqa: PTH116
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
