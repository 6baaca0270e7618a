"""Files that stand for quarantined rows of source files, and where each of their rows was in its source file."""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from runnel.connect.ingest.release.correction_file import CsvLayout
from runnel.connect.ingest.release.release_text import ReleaseTextWriter
from runnel.connect.ingest.shared_scratch import ScratchFolder
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.lake.iceberg.file_io import local_path
from runnel.lake.warehouse_files import WarehouseFiles


@dataclass(frozen=True)
class ReleaseFile:
    """A file to read, with quarantined rows of one source file: `origin` is its name, "" for rows of no file.

    `places` is the location of a file with the first line of each row, and the place of the row in the source file.
    """

    location: str
    bytes: int
    origin: str
    owner: str
    rows: int
    places: str


class ReleaseFileWriter:
    """Writes quarantined rows to a file to read, and their places to another; use it as a context manager."""

    def __init__(self, path: Path, layout: CsvLayout | None, line_ending: str) -> None:
        self._path = path
        self._places_path = path.with_name(f"{path.name}.places")
        self._text_writer = ReleaseTextWriter(path, layout, line_ending)
        self._places_stream = self._places_path.open("w", encoding="utf-8")
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._text_writer.close()
        self._places_stream.close()

    def write(self, row: QuarantinedRow) -> None:
        """Write a row."""
        line = self._text_writer.write(row.raw or "")
        self._places_stream.write(json.dumps([line, row.place]) + "\n")
        self._rows += 1

    def share(self, folder: ScratchFolder, origin: str, owner: str) -> ReleaseFile:
        """Return the file, which is closed, as a file that all machines see."""
        location, places = folder.share_path(self._path), folder.share_path(self._places_path)
        return ReleaseFile(location, self._path.stat().st_size, origin, owner, self._rows, places)


@dataclass
class OriginRestorer:
    """Returns bad rows of files to read as rows of the files that they came from first; can be pickled.

    `release_files` are by the name that a file to read has for the reader. The places of one file are in memory.
    """

    release_files: Mapping[str, ReleaseFile]
    warehouse_files: WarehouseFiles
    _name: str | None = field(default=None, init=False)
    _lines: list[int] = field(default_factory=list, init=False)
    _places: list[str | None] = field(default_factory=list, init=False)

    def __call__(self, row: QuarantinedRow) -> QuarantinedRow:
        """Return a bad row with the file, the owner and the place that it had."""
        name = row.file or ""
        release_file = self.release_files[name]
        restored_row = replace(row, file=release_file.origin or None, owner=release_file.owner or None)
        if row.position is None or row.place is None:
            return restored_row
        if name != self._name:
            self._load_places(name)
        index = bisect_right(self._lines, int(row.position.split()[-1])) - 1
        if index < 0:
            return restored_row
        place = self._places[index]
        return replace(restored_row, reason=row.reason.replace(row.place, place) if place else row.cause)

    def _load_places(self, name: str) -> None:
        self._name, self._lines, self._places = name, [], []
        for text in self._read_text(self.release_files[name].places).splitlines():
            line, place = json.loads(text)
            self._lines.append(line)
            self._places.append(place)

    def _read_text(self, location: str) -> str:
        if (path := local_path(location)) is not None:
            return path.read_text(encoding="utf-8")
        with self.warehouse_files.io.new_input(location).open() as stream:
            return bytes(stream.read()).decode()
