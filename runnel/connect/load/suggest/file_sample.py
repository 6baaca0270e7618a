"""Take a sample of a file: its first lines, or a whole document."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from runnel.connect.files.csv_text.dialect_detection import detect_encoding
from runnel.connect.files.file_patterns import CSV, JSONL, TEXT, LocalFile
from runnel.connect.files.scratch_files import open_file

_SAMPLE_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 8 << 20  # a JSON or XML document is read as a whole
_TAIL_BYTES = 64 << 10
_LINE_FORMATS = (CSV, JSONL, TEXT)


@dataclass(frozen=True)
class FileSample:
    """A decompressed copy of the first lines of a file; `is_complete` tells whether they are all.

    `last_line` is that of the file if there are more lines and it can be read by itself.
    """

    file: LocalFile
    is_complete: bool
    last_line: bytes | None = None


def take_sample(file: LocalFile, format_name: str, folder: Path) -> FileSample | None:
    """Copy the first lines of a file into a folder; None if it is too large to look into."""
    limit = _SAMPLE_BYTES if format_name in _LINE_FORMATS else _MAX_DOCUMENT_BYTES
    with open_file(file) as stream:
        head = stream.read(limit)
        is_complete = not stream.read(1)
    if not is_complete:
        encoding = detect_encoding(head) or "utf-8"
        text = head.decode(encoding, errors="ignore") if encoding.startswith(("utf-16", "utf-32")) else None
        if format_name not in _LINE_FORMATS or b"\n" not in head:
            return None
        head = text[: text.rindex("\n") + 1].encode(encoding) if text else head[: head.rindex(b"\n") + 1]
    path = folder / f"sample{file.extension}"
    path.write_bytes(head)
    sample = replace(file, path=str(path), bytes=len(head), modified_at=path.stat().st_mtime)
    return FileSample(sample, is_complete, None if is_complete else _read_last_line(file))


def _read_last_line(file: LocalFile) -> bytes | None:
    if file.compression is not None:
        return None
    with Path(file.path).open("rb") as stream:
        stream.seek(-min(_TAIL_BYTES, file.bytes), os.SEEK_END)
        _, line_end, last_line = stream.read().rstrip(b"\r\n").rpartition(b"\n")
    return last_line if line_end else None
