"""Find the files on disk that a `put` is to take: files, folders and globs, with the path that each gets in the lake.

Reads folders, never files. What it returns is sorted by path.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePosixPath

from runnel.errors import Mistake, listed, nearest
from runnel.lake.files.paths import RULE, checked, is_glob, problem
from runnel.names import shown


@dataclass(frozen=True, slots=True)
class Found:
    """A file to take: its path in the lake, and the regular file on disk that it comes from."""

    path: str
    file: str
    size: int


def collect(sources: Sequence[Path], prefix: str = "", *, lake: Path | None = None) -> list[Found]:
    """Return the files that sources name, or raise with all names that the lake refuses.

    A file keeps its name; what is below a folder, or below the fixed part of a glob, keeps its path from there.
    `lake` is the folder of the warehouse, which can't take itself.
    """
    start = checked(prefix.strip("/")) + "/" if prefix.strip("/") else ""
    own = None if lake is None else lake.resolve()
    files = sorted((start + path, file, size) for source in sources for path, file, size in _below(source, own))
    wrong = [f"{shown(path)} {problem(path)}" for path, _, _ in files if problem(path)]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise Mistake("FILES_PATH", "; ".join(wrong[:3]) + more, fix=f"rename it: {RULE}")
    found = [Found(*file) for file in files]
    for one, other in pairwise(found):
        if one.path == other.path:
            what = f"both {one.file} and {other.file} would become `{one.path}`"
            fix = "put them with different prefixes, or put the folder that holds both"
            raise Mistake("FILES_SAME_PATH", what, fix=fix)
    if not found:
        names = listed(str(source) for source in sources) if sources else "nothing"
        raise Mistake(
            "FILES_NONE", f"there are no files in {names}", fix="name files, folders that have files, or globs"
        )
    return found


def _below(source: Path, lake: Path | None) -> Iterator[tuple[str, str, int]]:
    try:
        info = source.stat()
    except OSError as error:
        if error.errno == errno.ENOENT and is_glob(str(source)):
            yield from _globbed(source, lake)
            return
        raise _unfound(source, error) from error
    except ValueError as error:  # a NUL
        raise Mistake("FILES_NOT_FOUND", f"there is no file {_long(source)}", fix="check the spelling") from error
    if stat.S_ISDIR(info.st_mode):
        folder = _Folder(source, lake)
        yield from folder.walk("", os.path.realpath(source), (folder.identity(info),))
        return
    _regular(str(source), info)
    yield source.name, os.path.realpath(source), info.st_size


class _Folder:
    """A folder that was named by a user: links in it may lead anywhere below it, and nowhere else."""

    def __init__(self, shown_as: Path, lake: Path | None) -> None:
        self.shown_as = shown_as
        self.root = os.path.realpath(shown_as)
        self.lake = str(lake) if lake else None

    @staticmethod
    def identity(info: os.stat_result) -> tuple[int, int]:
        return info.st_dev, info.st_ino

    def walk(self, below: str, folder: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str, int]]:
        """Yield (path, file, size) for all files of a folder; `above` are the folders on the way, to see loops."""
        if folder == self.lake:
            what = f"{self.shown_as} holds the lake's own files, in {folder}"
            raise Mistake("FILES_LAKE_INSIDE", what, fix="put a folder beside the lake")
        for item in _items(folder):
            yield from self.take(below + item.name, item, above)

    def take(
        self, path: str, item: "os.DirEntry[str]", above: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield an entry of a folder, or everything below it."""
        file = self._followed(item) if item.is_symlink() else item.path
        try:
            info = item.stat()
        except OSError as error:
            raise _unreadable(item.path, error) from error
        if not stat.S_ISDIR(info.st_mode):
            _regular(item.path, info)
            yield path, file, info.st_size
            return
        if self.identity(info) in above:
            what = f"the symbolic link {item.path} leads back to a folder above it"
            raise Mistake("FILES_SYMLINK_LOOP", what, fix="remove the link")
        yield from self.walk(path + "/", file, (*above, self.identity(info)))

    def _followed(self, item: "os.DirEntry[str]") -> str:
        try:
            target = os.path.realpath(item.path, strict=True)
        except OSError as error:
            loop = error.errno == errno.ELOOP
            code, does = ("FILES_SYMLINK_LOOP", "leads in a circle") if loop else ("FILES_SYMLINK", "leads nowhere")
            raise Mistake(code, f"the symbolic link {item.path} {does}", fix="remove the link") from error
        if os.path.commonpath((self.root, target)) != self.root:
            what = f"the symbolic link {item.path} leads out of {self.shown_as}, to {target}"
            raise Mistake("FILES_SYMLINK", what, fix="put the file that it leads to by its own name")
        return target


def _globbed(source: Path, lake: Path | None) -> Iterator[tuple[str, str, int]]:
    names = source.parts
    wild = next(number for number, name in enumerate(names) if is_glob(name))
    folder = _Folder(Path(*names[:wild]), lake)
    whole: set[str] = set()
    found = _matching(folder.root, "", names[wild:]) if Path(folder.root).is_dir() else ()
    for path, item in found:
        # A folder that matches is taken whole; what it holds may match once more, and comes after it.
        if not whole.isdisjoint((path, *(str(parent) for parent in PurePosixPath(path).parents))):
            continue
        whole.add(path)
        yield from folder.take(path, item, (folder.identity(os.stat(folder.root)),))  # noqa: PTH116
    if not whole:
        raise Mistake("FILES_NO_MATCH", f"no file matches {_long(source)}", fix="check the glob, and quote it")


def _matching(folder: str, below: str, names: Sequence[str]) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield what matches a glob, name by name; links to folders are not searched."""
    first, rest = names[0], names[1:]
    if first == "**" and rest:
        yield from _matching(folder, below, rest)
    for item in _items(folder):
        deeper = item.is_dir(follow_symlinks=False)
        if first == "**":
            if item.name.startswith("."):
                continue
            if not rest and not deeper:
                yield below + item.name, item
            if deeper:
                yield from _matching(item.path, f"{below}{item.name}/", names)
        elif _fits(item.name, first):
            if not rest:
                yield below + item.name, item
            elif deeper:
                yield from _matching(item.path, f"{below}{item.name}/", rest)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _items(folder: str) -> Iterable["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as items:
            return list(items)
    except OSError as error:
        raise _unreadable(folder, error) from error


def _regular(file: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(info.st_mode), "a device")
        raise Mistake("FILES_NOT_REGULAR", f"{file} is {kind}, not a file", fix="move it out of the folder")


def _unreadable(file: str, error: OSError) -> Mistake:
    return Mistake(
        "FILES_UNREADABLE", f"{file} can't be read: {error.strerror}", fix="give this user the right to read it"
    )


def _unfound(source: Path, error: OSError) -> Mistake:
    if error.errno == errno.EACCES:
        return _unreadable(str(source), error)
    folder = source.parent
    close = nearest(source.name, os.listdir(folder)) if folder.is_dir() else None  # noqa: PTH208 - names, not paths
    what = f"there is no file {_long(source)}" + (f"; close: `{folder / close}`" if close else "")
    return Mistake("FILES_NOT_FOUND", what, fix="check the spelling")


def _long(source: Path) -> str:
    return shown(source, most=300)  # the end of a path tells most
