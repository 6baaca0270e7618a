"""Where a file that is turned into Parquet goes: under folders that say the same as those of its own path."""

from pathlib import Path

from runnel.connect.files.file_patterns import File
from runnel.connect.files.scratch_files import Scratch


def parquet_path(file: File, scratch: Scratch) -> Path:
    """Return a fresh path; `day=2026-01-02/` in the path of the file is in it too."""
    parts = [part for part in Path(file.path).parent.parts if part.partition("=")[1]]
    return scratch.fresh("/".join([*parts, "rows.parquet"]))
