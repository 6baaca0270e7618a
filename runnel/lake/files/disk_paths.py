"""Find the files on disk that a put is to read: files, folders and globs, with the path that each gets in the lake.

Reads folders, never files. The result is sorted by path.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePosixPath

from runnel.errors import Mistake, close_hint, find_nearest, join_names
from runnel.lake.files.paths import PATH_RULE, check_path, find_path_problem, is_glob
from runnel.names import quote_value


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file to put: its path in the lake, and the regular file on disk that it is read from."""

    path: str
    disk_path: str
    size: int


def collect_files(sources: Sequence[Path], prefix: str = "", *, lake: Path | None = None) -> list[DiskFile]:
    """Return the files that `sources` name, or raise with all paths that the lake refuses.

    A file keeps its name; a file below a folder, or below the fixed part of a glob, keeps its path from there.
    `lake` is the folder of the warehouse, whose files can't be put into itself.
    """
    start = check_path(prefix.strip("/")) + "/" if prefix.strip("/") else ""
    lake_folder = None if lake is None else lake.resolve()
    files = sorted(
        (start + path, file, size) for source in sources for path, file, size in _find_files(source, lake_folder)
    )
    problems = [f"{quote_value(path)} {find_path_problem(path)}" for path, _, _ in files if find_path_problem(path)]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise Mistake("FILES_PATH", "; ".join(problems[:3]) + more, fix=f"rename it: {PATH_RULE}")
    disk_files = [DiskFile(*file) for file in files]
    for first, second in pairwise(disk_files):
        if first.path == second.path:
            what = f"both {first.disk_path} and {second.disk_path} would become `{first.path}`"
            fix = "put them with different prefixes, or put the folder that holds both"
            raise Mistake("FILES_SAME_PATH", what, fix=fix)
    if not disk_files:
        names = join_names(str(source) for source in sources) if sources else "nothing"
        raise Mistake(
            "FILES_NONE", f"there are no files in {names}", fix="name files, folders that have files, or globs"
        )
    return disk_files


def _find_files(source: Path, lake: Path | None) -> Iterator[tuple[str, str, int]]:
    try:
        info = source.stat()
    except OSError as error:
        if error.errno == errno.ENOENT and is_glob(str(source)):
            yield from _expand_glob(source, lake)
            return
        raise _not_found_error(source, error) from error
    except ValueError as error:  # a NUL
        raise Mistake("FILES_NOT_FOUND", f"there is no file {_quote_path(source)}", fix="check the spelling") from error
    if stat.S_ISDIR(info.st_mode):
        folder = _DiskFolder(source, lake)
        yield from folder.walk("", os.path.realpath(source), (folder.identity(info),))
        return
    _check_regular(str(source), info)
    yield source.name, os.path.realpath(source), info.st_size


class _DiskFolder:
    """A folder that a user named: symbolic links in it may only lead to places inside it."""

    def __init__(self, display_path: Path, lake: Path | None) -> None:
        self.display_path = display_path
        self.root = os.path.realpath(display_path)
        self.lake = str(lake) if lake else None

    @staticmethod
    def identity(info: os.stat_result) -> tuple[int, int]:
        return info.st_dev, info.st_ino

    def walk(
        self, path_prefix: str, folder: str, ancestors: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield (path, file, size) for all files of a folder; `ancestors` are the folders above it, to detect loops."""
        if folder == self.lake:
            what = f"{self.display_path} holds the lake's own files, in {folder}"
            raise Mistake("FILES_LAKE_INSIDE", what, fix="put a folder outside the lake")
        for item in _list_folder(folder):
            yield from self.find_files(path_prefix + item.name, item, ancestors)

    def find_files(
        self, path: str, item: "os.DirEntry[str]", ancestors: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[str, str, int]]:
        """Yield a file of a folder, or all files below a subfolder."""
        file = self._follow_link(item) if item.is_symlink() else item.path
        try:
            info = item.stat()
        except OSError as error:
            raise _unreadable_error(item.path, error) from error
        if not stat.S_ISDIR(info.st_mode):
            _check_regular(item.path, info)
            yield path, file, info.st_size
            return
        if self.identity(info) in ancestors:
            what = f"the symbolic link {item.path} points to a folder that contains it"
            raise Mistake("FILES_SYMLINK_LOOP", what, fix="remove the link")
        yield from self.walk(path + "/", file, (*ancestors, self.identity(info)))

    def _follow_link(self, item: "os.DirEntry[str]") -> str:
        try:
            target = os.path.realpath(item.path, strict=True)
        except OSError as error:
            is_loop = error.errno == errno.ELOOP
            code, problem_text = (
                ("FILES_SYMLINK_LOOP", "is part of a loop")
                if is_loop
                else ("FILES_SYMLINK", "points to a file that does not exist")
            )
            raise Mistake(code, f"the symbolic link {item.path} {problem_text}", fix="remove the link") from error
        if os.path.commonpath((self.root, target)) != self.root:
            what = f"the symbolic link {item.path} points outside {self.display_path}, to {target}"
            raise Mistake("FILES_SYMLINK", what, fix="put the file that it points to, by its own path")
        return target


def _expand_glob(source: Path, lake: Path | None) -> Iterator[tuple[str, str, int]]:
    names = source.parts
    first_wildcard = next(number for number, name in enumerate(names) if is_glob(name))
    folder = _DiskFolder(Path(*names[:first_wildcard]), lake)
    matched_paths: set[str] = set()
    matches = _match_names(folder.root, "", names[first_wildcard:]) if Path(folder.root).is_dir() else ()
    for path, item in matches:
        # A folder that matches is put completely; its files may match again, after it, and are then skipped.
        if not matched_paths.isdisjoint((path, *(str(parent) for parent in PurePosixPath(path).parents))):
            continue
        matched_paths.add(path)
        yield from folder.find_files(path, item, (folder.identity(os.stat(folder.root)),))  # noqa: PTH116
    if not matched_paths:
        raise Mistake("FILES_NO_MATCH", f"no file matches {_quote_path(source)}", fix="check the glob, and quote it")


def _match_names(folder: str, path_prefix: str, names: Sequence[str]) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield the files and folders that match a glob, name by name; links to folders are not searched."""
    pattern, remaining = names[0], names[1:]
    if pattern == "**" and remaining:
        yield from _match_names(folder, path_prefix, remaining)
    for item in _list_folder(folder):
        is_folder = item.is_dir(follow_symlinks=False)
        if pattern == "**":
            if item.name.startswith("."):
                continue
            if not remaining and not is_folder:
                yield path_prefix + item.name, item
            if is_folder:
                yield from _match_names(item.path, f"{path_prefix}{item.name}/", names)
        elif _is_match(item.name, pattern):
            if not remaining:
                yield path_prefix + item.name, item
            elif is_folder:
                yield from _match_names(item.path, f"{path_prefix}{item.name}/", remaining)


def _is_match(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _list_folder(folder: str) -> Iterable["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as items:
            return list(items)
    except OSError as error:
        raise _unreadable_error(folder, error) from error


def _check_regular(file: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(info.st_mode), "a device")
        raise Mistake("FILES_NOT_REGULAR", f"{file} is {kind}, not a file", fix="move it out of the folder")


def _unreadable_error(file: str, error: OSError) -> Mistake:
    return Mistake(
        "FILES_UNREADABLE", f"{file} can't be read: {error.strerror}", fix="give this user the right to read it"
    )


def _not_found_error(source: Path, error: OSError) -> Mistake:
    if error.errno == errno.EACCES:
        return _unreadable_error(str(source), error)
    folder = source.parent
    close = find_nearest(source.name, os.listdir(folder)) if folder.is_dir() else None  # noqa: PTH208 - names, not paths
    what = f"there is no file {_quote_path(source)}" + close_hint(str(folder / close) if close else None)
    return Mistake("FILES_NOT_FOUND", what, fix="check the spelling")


def _quote_path(source: Path) -> str:
    return quote_value(source, max_length=300)  # long, because the end of a path matters most
