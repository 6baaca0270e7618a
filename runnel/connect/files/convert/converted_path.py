"""Choose the path of a file that is converted to Parquet; it keeps the Hive-style folders of the original path."""

from pathlib import Path

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles


def new_parquet_path(file: LocalFile, scratch: ScratchFiles) -> Path:
    """Return a new path; it has the Hive-style folders of the file's path, such as `day=2026-01-02/`."""
    parts = [part for part in Path(file.path).parent.parts if part.partition("=")[1]]
    return scratch.new_path("/".join([*parts, "rows.parquet"]))
