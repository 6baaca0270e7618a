"""Write quarantined rows, as they are, to files that their source can read, in work units.

A unit reads some data files of the quarantine table. So no process holds all rows, and each is read once. What stays in
quarantine is written again.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.ingest.release.correction_file import is_csv, is_single_record, read_layout
from runnel.connect.ingest.release.release_origin import ReleaseFile, ReleaseFileWriter
from runnel.connect.ingest.release.release_text import choose_extension
from runnel.connect.ingest.shared_scratch import ScratchFolder, SharedScratch
from runnel.connect.load.quarantine_files import QuarantineFileWriter, find_owner
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import Source
from runnel.lake.iceberg.data_file_owners import is_shared, read_file_name
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.owners.row_runs import OwnerLookup
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import WarehouseFiles

UNIT_BYTES = 16 << 20  # of data files, whose rows need several times as much as text
EXAMPLE_COUNT = 1000
_READ_ROWS = 10_000
_PATH, _POSITION = quote_identifier(FILE_COLUMN), quote_identifier(POSITION_COLUMN)
_SELECTED = "raw IS NOT NULL AND ($1 IS NULL OR coalesce(file, '') = $1)"


@dataclass(frozen=True)
class PreparedUnit:
    """The files to read, and what replaces the quarantine's data files: those of `removed` paths, by `retained` ones.

    `uncorrected` rows can't be read, and stay; `examples` are some of them.
    """

    files: tuple[ReleaseFile, ...] = ()
    removed: tuple[str, ...] = ()
    retained: "tuple[DataFile, ...]" = ()
    uncorrected: int = 0
    examples: tuple[QuarantinedRow, ...] = ()


def divide_entries(entries: Sequence[FileEntry]) -> list[tuple[FileEntry, ...]]:
    """Return the data files of a table in units, each with all deletes."""
    deletes = tuple(entry for entry in entries if not entry.is_data)
    units: list[tuple[FileEntry, ...]] = []
    open_entries: list[FileEntry] = []
    size = 0
    for entry in entries:
        if not entry.is_data:
            continue
        open_entries.append(entry)
        size += entry.file.file_size_in_bytes
        if size >= UNIT_BYTES:
            units.append((*open_entries, *deletes))
            open_entries, size = [], 0
    return [*units, (*open_entries, *deletes)] if open_entries else units


@dataclass(frozen=True)
class ReleasePreparer:
    """Writes the rows of a unit to files; `file` is the source file whose rows are released, None for all."""

    source: Source
    root: Path
    file: str | None
    files: "WarehouseFiles"
    metadata: "TableMetadata"
    scratch: SharedScratch

    def __call__(self, entries: Sequence[FileEntry]) -> PreparedUnit:
        """Work on some data files of the quarantine table; `entries` has the deletes of the table, too."""
        with translate_duckdb_errors(), connect_duckdb() as con:
            changed_names = self._find_data_files(con, entries)
            changed = [entry for entry in entries if entry.is_data and read_file_name(entry.path) in changed_names]
            if not changed:
                return PreparedUnit()
            deletes = [entry for entry in entries if not entry.is_data]
            with self.scratch.open_folder() as folder:
                unit = _UnitPreparation(self, folder, any(is_shared(entry.path) for entry in changed))
                return unit.prepare(con, [*changed, *deletes], changed)

    def _find_data_files(self, con: "duckdb.DuckDBPyConnection", entries: Sequence[FileEntry]) -> frozenset[str]:
        """Return the names of the data files that have rows to release."""
        rows = rows_sql(self.files, self.metadata, entries, with_positions=True)
        paths = con.execute(f"SELECT DISTINCT {_PATH} FROM ({rows}) WHERE {_SELECTED}", [self.file]).fetchall()
        return frozenset(read_file_name(path) for (path,) in paths)


class _UnitPreparation:
    """Writes the rows of data files of which some are released: to files to read, or back to the quarantine."""

    def __init__(self, preparer: ReleasePreparer, folder: ScratchFolder, shares_files: bool) -> None:
        self._preparer = preparer
        self._folder = folder
        self._retained = QuarantineFileWriter(preparer.files, preparer.metadata, shares_files=shares_files)
        self._files: list[ReleaseFile] = []
        self._uncorrected = 0
        self._examples: list[QuarantinedRow] = []

    def prepare(
        self, con: "duckdb.DuckDBPyConnection", entries: Sequence[FileEntry], changed: Sequence[FileEntry]
    ) -> PreparedUnit:
        preparer, owner_lookup = self._preparer, OwnerLookup(self._preparer.files, changed)
        rows = rows_sql(preparer.files, preparer.metadata, entries, with_positions=True)
        line_endings = self._find_line_endings(con, rows)
        columns = f'raw, reason, file, run, "at", {_PATH}, {_POSITION}, coalesce({_SELECTED}, false)'
        con.execute(f'SELECT {columns} FROM ({rows}) ORDER BY file, "at", reason, raw', [preparer.file])
        all_rows = (
            (QuarantinedRow(raw, reason, file, run, at, owner_lookup.find_owner(read_file_name(path), number)), chosen)
            for raw, reason, file, run, at, path, number, chosen in _fetch_rows(con)
        )
        for name, group in groupby(all_rows, key=lambda row: row[0].file or ""):
            self._write_rows_of_file(name, group, line_endings.get(name, "\n"))
        return PreparedUnit(
            tuple(self._files),
            tuple(entry.path for entry in changed),
            tuple(self._retained.close()),
            self._uncorrected,
            tuple(self._examples),
        )

    def _find_line_endings(self, con: "duckdb.DuckDBPyConnection", rows: str) -> dict[str, str]:
        """Return the line ending of the files whose rows have line breaks of another kind."""
        if not is_csv(self._preparer.source):
            return {}
        names = con.execute(f"SELECT DISTINCT file FROM ({rows}) WHERE contains(raw, chr(13) || chr(10))").fetchall()
        return {name or "": "\r\n" for (name,) in names}

    def _write_rows_of_file(self, name: str, rows: Iterator[tuple[QuarantinedRow, bool]], line_ending: str) -> None:
        """Write the rows of a source file; a file to read holds those of one owner."""
        source = self._preparer.source
        layout = read_layout(source, self._preparer.root, name) if is_csv(source) else None
        with ExitStack() as stack:
            writers: dict[str, ReleaseFileWriter] = {}
            while batch := list(islice(rows, _READ_ROWS)):
                retained_rows: dict[str, list[QuarantinedRow]] = {}
                for row, is_selected in batch:
                    owner = find_owner(row, {})
                    if is_selected and (layout is None or is_single_record(source, row.raw or "", layout)):
                        if owner not in writers:
                            path = self._folder.path / f"{len(self._files) + len(writers)}{choose_extension(layout)}"
                            writers[owner] = stack.enter_context(ReleaseFileWriter(path, layout, line_ending))
                        writers[owner].write(row)
                        continue
                    retained_rows.setdefault(owner, []).append(row)
                    if is_selected:
                        self._note_uncorrected(row)
                for owner, owner_rows in retained_rows.items():
                    self._retained.write(owner, owner_rows)
        self._files += [writer.share(self._folder, name, owner) for owner, writer in writers.items()]

    def _note_uncorrected(self, row: QuarantinedRow) -> None:
        self._uncorrected += 1
        if len(self._examples) < EXAMPLE_COUNT:
            self._examples.append(row)


def _fetch_rows(con: "duckdb.DuckDBPyConnection") -> Iterator[tuple[Any, ...]]:
    while records := con.fetchmany(_READ_ROWS):
        yield from records
