"""List and download files in an object store. Their identity is their path, size and time.

An object is never visible half-written.
"""

import glob
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from runnel.connect.files.object_stores import describe_store_error, open_file_system, run_concurrently
from runnel.connect.ingest.detect.listing import ListedSourceFile, is_ignored
from runnel.errors import RunnelError, Unreachable
from runnel.model.progress import Progress
from runnel.names import quote_value

_CHUNK = 1 << 20


def list_objects(pattern: str, storage: Mapping[str, str]) -> dict[str, ListedSourceFile]:
    """Return the objects that a glob matches, by URL and sorted."""
    from pyarrow.fs import FileSelector, FileType

    with _describe_store_errors(pattern, storage):
        file_system, object_pattern = open_file_system(pattern, storage)
        url_prefix = pattern[
            : len(pattern) - len(object_pattern)
        ]  # the part of a URL that is not in the file system's paths
        matches = re.compile(glob_to_regex(object_pattern)).fullmatch
        folder = _find_fixed_folder(object_pattern)
        is_deep = "/" in object_pattern[len(folder) :].lstrip("/")
        selector = FileSelector(folder, recursive=is_deep, allow_not_found=True)
        listed_files = [
            ListedSourceFile(url_prefix + info.path, info.size, info.mtime_ns or 0)
            for info in file_system.get_file_info(selector)
            if info.type == FileType.File and matches(info.path) and not is_ignored(info.path, object_pattern)
        ]
    return {file.path: file for file in sorted(listed_files, key=lambda file: file.path)}


def compute_object_digest(file: ListedSourceFile) -> str:
    """Return a digest of an object's path, size and time: hashing its contents would need a download."""
    return hashlib.sha256(f"{file.path}:{file.size}:{file.modified_ns}".encode()).hexdigest()


def find_changed_objects(files: Iterable[tuple[str, int, int]], storage: Mapping[str, str]) -> set[str]:
    """Return the paths of objects whose size or time differs from the given one."""

    def has_changed(file: tuple[str, int, int]) -> bool:
        path, size, modified_ns = file
        with _describe_store_errors(path, storage):
            file_system, object_path = open_file_system(path, storage)
            info = file_system.get_file_info(object_path)
        return (info.size, info.mtime_ns) != (size, modified_ns)

    checked_files = list(files)
    return {
        path
        for (path, *_), is_changed in zip(checked_files, run_concurrently(has_changed, checked_files), strict=True)
        if is_changed
    }


def download(
    paths: Mapping[str, Path],
    storage: Mapping[str, str],
    report_progress: Progress | None = None,
) -> dict[str, Path]:
    """Download objects, each below its folder, and return their local paths."""
    local_paths: dict[str, Path] = {}
    for path, local_path in zip(
        paths, run_concurrently(lambda path: _download_object(path, paths[path], storage), [*paths]), strict=True
    ):
        local_paths[path] = local_path
        if report_progress is not None:
            report_progress("fetching objects", len(local_paths), len(paths))
    return local_paths


@contextmanager
def open_object(path: str, storage: Mapping[str, str]) -> Iterator[IO[bytes]]:
    """Open an object; only the bytes that are read are fetched."""
    with _describe_store_errors(path, storage):
        file_system, object_path = open_file_system(path, storage)
        with file_system.open_input_file(object_path) as stream:
            yield cast(IO[bytes], stream)


def _download_object(path: str, folder: Path, storage: Mapping[str, str]) -> Path:
    """Download an object below a folder, keeping its Hive-style folders (`day=2026-01-02/`); return its local path."""
    *parts, name = path.split("://", 1)[1].split("/")
    target = folder.joinpath(*(part for part in parts if "=" in part), name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _describe_store_errors(path, storage):
        file_system, object_path = open_file_system(path, storage)
        with file_system.open_input_stream(object_path, compression=None) as stream, target.open("wb") as out:
            while chunk := stream.read(_CHUNK):
                out.write(chunk)
    return target


def _find_fixed_folder(pattern: str) -> str:
    """Return the deepest folder that a glob spells out.

    >>> _find_fixed_folder("bucket/a/b*/c.csv"), _find_fixed_folder("bucket/a.csv")
    ('bucket/a', 'bucket')
    """
    parts = pattern.split("/")
    first_pattern = next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:first_pattern]) or "/"


def glob_to_regex(pattern: str) -> str:
    """Convert a glob to a regular expression: `**` is any number of folders.

    >>> bool(re.fullmatch(glob_to_regex("b/**/*.csv"), "b/x/y/a.csv"))
    True
    >>> bool(re.fullmatch(glob_to_regex("b/*.csv"), "b/x/a.csv"))
    False
    """
    expressions = []
    for index, part in enumerate(parts := pattern.split("/")):
        is_last = index == len(parts) - 1
        if part == "**":
            expressions.append(".*" if is_last else "(?:.*/)?")
            continue
        text = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        text = re.sub(r"\\\[(!?)(.*?)\\\]", lambda match: f"[{'^' if match[1] else ''}{match[2]}]", text)
        expressions.append(text + ("" if is_last else "/"))
    return "".join(expressions)


@contextmanager
def _describe_store_errors(url: str, storage: Mapping[str, str]) -> Iterator[None]:
    """Turn errors of an object store into errors that a user can act on, without any value of a setting."""
    try:
        yield
    except OSError as error:
        text, is_unreachable = describe_store_error(error, storage)
        what = f"{quote_value(url)} can't be read: {text}"
        if is_unreachable:
            fix = "check the network, and s3.endpoint in [lake.storage]"
            raise Unreachable("SOURCE_UNREACHABLE", what, at=url, fix=fix) from None
        fix = "check the address, and the keys in [lake.storage] of runnel.toml"
        raise RunnelError("SOURCE_STORE", what, at=url, fix=fix) from None
