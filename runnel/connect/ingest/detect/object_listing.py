"""Files in an object store: listed, known by size and time, and brought to local disk when they are read.

An object is never half written.
"""

import glob
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runnel.connect.files.object_stores import at_once, said, system_of
from runnel.connect.ingest.detect.listing import Present, is_passed_over
from runnel.errors import RunnelError, Unreachable
from runnel.names import shown

_CHUNK = 1 << 20


def objects(pattern: str, storage: Mapping[str, str]) -> dict[str, Present]:
    """Return the objects that a glob matches, by address and sorted."""
    from pyarrow.fs import FileSelector, FileType

    with _told(pattern, storage):
        system, inside = system_of(pattern, storage)
        before = pattern[: len(pattern) - len(inside)]  # the part of an address that the file system doesn't want
        matches = re.compile(regex_of(inside)).fullmatch
        folder = _folder(inside)
        is_deep = "/" in inside[len(folder) :].lstrip("/")
        selector = FileSelector(folder, recursive=is_deep, allow_not_found=True)
        found = [
            Present(before + info.path, info.size, info.mtime_ns or 0)
            for info in system.get_file_info(selector)
            if info.type == FileType.File and matches(info.path) and not is_passed_over(info.path, inside)
        ]
    return {file.path: file for file in sorted(found, key=lambda file: file.path)}


def digest(file: Present) -> str:
    """Return what an object's contents are known by: nobody sums what is not read."""
    return hashlib.sha256(f"{file.path}:{file.size}:{file.modified_ns}".encode()).hexdigest()


def moved(files: Iterable[tuple[str, int, int]], storage: Mapping[str, str]) -> set[str]:
    """Return which of some objects, given with their sizes and times, are not what they were."""

    def is_moved(file: tuple[str, int, int]) -> bool:
        path, size, modified_ns = file
        with _told(path, storage):
            system, inside = system_of(path, storage)
            info = system.get_file_info(inside)
        return (info.size, info.mtime_ns) != (size, modified_ns)

    asked = list(files)
    return {path for (path, *_), is_other in zip(asked, at_once(is_moved, asked), strict=True) if is_other}


def download(
    paths: Mapping[str, Path], storage: Mapping[str, str], tell: Callable[[str, int, int | None], None] | None = None
) -> dict[str, Path]:
    """Copy objects, each below its folder, and return where they are."""
    found: dict[str, Path] = {}
    for path, made in zip(paths, at_once(lambda path: _downloaded(path, paths[path], storage), [*paths]), strict=True):
        found[path] = made
        if tell is not None:
            tell("fetching objects", len(found), len(paths))
    return found


def _downloaded(path: str, folder: Path, storage: Mapping[str, str]) -> Path:
    """Copy an object below a folder, under folders that say the same (`day=2026-01-02/`), and return where it is."""
    *parts, name = path.split("://", 1)[1].split("/")
    target = folder.joinpath(*(part for part in parts if "=" in part), name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _told(path, storage):
        system, inside = system_of(path, storage)
        with system.open_input_stream(inside, compression=None) as stream, target.open("wb") as out:
            while chunk := stream.read(_CHUNK):
                out.write(chunk)
    return target


def _folder(pattern: str) -> str:
    """Return the deepest folder that a glob spells out.

    >>> _folder("bucket/a/b*/c.csv"), _folder("bucket/a.csv")
    ('bucket/a', 'bucket')
    """
    parts = pattern.split("/")
    magic = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:magic]) or "/"


def regex_of(pattern: str) -> str:
    """Return a glob as a regular expression: `**` is any number of folders.

    >>> bool(re.fullmatch(regex_of("b/**/*.csv"), "b/x/y/a.csv")), bool(re.fullmatch(regex_of("b/*.csv"), "b/x/a.csv"))
    (True, False)
    """
    made = []
    for place, part in enumerate(parts := pattern.split("/")):
        last = place == len(parts) - 1
        if part == "**":
            made.append(".*" if last else "(?:.*/)?")
            continue
        text = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        text = re.sub(r"\\\[(!?)(.*?)\\\]", lambda found: f"[{'^' if found[1] else ''}{found[2]}]", text)
        made.append(text + ("" if last else "/"))
    return "".join(made)


@contextmanager
def _told(address: str, storage: Mapping[str, str]) -> Iterator[None]:
    """Turn what an object store says into what a user can act on, without any value of a setting."""
    try:
        yield
    except OSError as error:
        text, is_away = said(error, storage)
        what = f"{shown(address)} can't be read: {text}"
        if is_away:
            fix = "check the network, and s3.endpoint in [lake.storage]"
            raise Unreachable("SOURCE_UNREACHABLE", what, at=address, fix=fix) from None
        fix = "check the address, and the keys in [lake.storage] of runnel.toml"
        raise RunnelError("SOURCE_STORE", what, at=address, fix=fix) from None
