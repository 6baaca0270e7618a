"""The files of a source where they are read: their absolute paths, objects fetched to disk, empty files left out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runnel.connect.files.file_patterns import AVRO, BINARY, ORC, PARQUET, LocalFile
from runnel.connect.files.open_files import is_blank
from runnel.connect.ingest.detect.file_changes import SourceFile
from runnel.connect.ingest.detect.listing import is_object_url
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.lake.iceberg.data_file_owners import make_owner_prefix
from runnel.model.progress import Progress

_HEAD_BYTES = 4096


def list_files(root: Path, source_files: Sequence[SourceFile]) -> list[LocalFile]:
    """Return files with their absolute paths; the path of an object is its address. Reads nothing."""
    return [
        # The absolute path keeps the name of a symlink, and with it the extension.
        LocalFile(
            source_file.path,
            source_file.path if is_object_url(source_file.path) else os.path.abspath(root / source_file.path),  # noqa: PTH100
            source_file.size,
            source_file.modified_ns / 1e9,
        )
        for source_file in source_files
    ]


def fetch_objects(
    files: Sequence[LocalFile], storage: Mapping[str, str], folder: Path, report_progress: Progress | None = None
) -> list[LocalFile]:
    """Return the files on local disk; objects are downloaded below `folder`."""
    target_folders = {file.path: folder / make_owner_prefix(file.path) for file in files if is_object_url(file.path)}
    if not target_folders:
        return list(files)
    from runnel.connect.ingest.detect.object_listing import download

    local_paths = download(target_folders, storage, report_progress)
    return [replace(file, path=str(local_paths.get(file.path, file.path))) for file in files]


def drop_empty_files(source: Source, files: Sequence[LocalFile]) -> list[LocalFile]:
    """Return the files that are not empty; for the binary format an empty file is a row, too."""
    assert isinstance(source.origin, Files)
    if source.origin.format == BINARY:
        return list(files)
    filled_files = [file for file in files if file.bytes]
    if source.origin.format in (PARQUET, AVRO, ORC):
        return filled_files
    return [file for file in filled_files if file.bytes > _HEAD_BYTES or not is_blank(file)]


def warn_of_empty_files(names: Sequence[str]) -> tuple[str, ...]:
    """Warn of files without content: their writer may have failed."""
    if not names:
        return ()
    others = f" and {len(names) - 1:,} more are empty" if len(names) > 1 else " is empty"
    return (f"{names[0]}{others}",)
