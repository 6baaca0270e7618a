"""The files that the rows of a database are read into, and what a read asks about them.

One read of a table is written once, for files of this process (here) and for files of work units (`table_units.py`).
Imports nothing heavy: plans import the module.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runnel.connect.feed.protocol import TargetTable
from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.jdbc.bad_rows import check_key_is_unique
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.connect.jdbc.database import SourceDatabase
    from runnel.connect.jdbc.row_reader import ReadResult, RowQuery
    from runnel.connect.jdbc.table_inspection import TableInspection


@dataclass(frozen=True)
class DifferingRows:
    """The rows of a read that the table lacks, and the files with the keys of all its rows."""

    rows: "ReadResult"
    key_files: tuple[Path, ...]


class RowFiles(Protocol):
    """Files for the rows of one read. `folder` is a folder of this process; `target` the table to compare with."""

    @property
    def folder(self) -> Path:
        """Return a folder for rows that only this process needs."""

    @property
    def target(self) -> TargetTable | None:
        """Return the table that new rows are compared with, if this process does it."""

    @property
    def report_progress(self) -> Progress:
        """Return the callback for progress."""

    def read(self, database: "SourceDatabase", query: "RowQuery", total: int | None) -> "ReadResult":
        """Read the rows of a query into files; there are about `total`."""

    def check_key(self, inspection: "TableInspection", read_result: "ReadResult") -> None:
        """Raise if a key occurs twice in what was read."""

    def write_differing_rows(self, inspection: "TableInspection", read_result: "ReadResult") -> DifferingRows | None:
        """Write the rows that the table lacks; None if there is no table to compare with."""


@dataclass(frozen=True)
class LocalRowFiles:
    """Files below a folder of this process."""

    folder: Path
    report_progress: Progress
    target: TargetTable | None = None

    def read(self, database: "SourceDatabase", query: "RowQuery", total: int | None) -> "ReadResult":
        """Read the rows of a query into files, with as many connections as it has conditions."""
        from runnel.connect.jdbc.row_reader import read_rows

        return read_rows(database, query, self.folder, self.report_progress, total)

    def check_key(self, inspection: "TableInspection", read_result: "ReadResult") -> None:
        """Raise if a key occurs twice in what was read."""
        check_key_is_unique(inspection, read_result.parts)

    def write_differing_rows(self, inspection: "TableInspection", read_result: "ReadResult") -> DifferingRows | None:
        """Write the rows that the table lacks; None if there is no table to compare with."""
        from runnel.connect.jdbc.row_reader import ReadResult

        path = self.folder / "differing.parquet"
        if self.target is None or not self.target.write_differing_rows(read_result.parts, path):
            return None
        part = FetchedFile(path, inspection.name, "parquet")
        return DifferingRows(ReadResult((part,)), tuple(part.path for part in read_result.parts))
