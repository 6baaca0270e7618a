"""Write quarantined rows as a file that their source reads: CSV with a header, or JSON lines."""

from pathlib import Path
from types import TracebackType
from typing import Self

from runnel.connect.ingest.release.correction_file import CsvLayout, flatten_json


class ReleaseTextWriter:
    """Writes one row after the other; use it as a context manager.

    All lines of a file must end in the same way: `line_ending` is that of line breaks in values, if rows have any.
    """

    def __init__(self, path: Path, layout: CsvLayout | None, line_ending: str) -> None:
        self._layout = layout
        self._line_ending = line_ending
        self._next_line = 1
        self._stream = path.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        if layout is not None:
            self._write_text(layout.header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the file."""
        self._stream.close()

    def write(self, text: str) -> int:
        """Write a row and return its first line."""
        line = self._next_line
        self._write_text(text if self._layout is not None else flatten_json(text))
        return line

    def _write_text(self, text: str) -> None:
        self._stream.write(text + self._line_ending)
        self._next_line += text.count("\n") + 1


def choose_extension(layout: CsvLayout | None) -> str:
    """Return the extension of a file to read, which tells the delimiter if the source does not declare one."""
    if layout is None:
        return ".jsonl"
    return ".tsv" if layout.delimiter == "\t" else ".csv"
