"""Count the values of a unit that fit no type, and write its rows as data files of the table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connect.files.format_reader import BadRow, FileColumn
from runnel.connect.files.open_files import AnyReader
from runnel.connect.ingest.bad_rows import QuarantineOutput, SetAside
from runnel.connect.ingest.batch_reader import RowOutput, store_small_files, write_batch_rows
from runnel.connect.ingest.part_writer import WrittenFiles
from runnel.connect.ingest.units.file_unit import FileUnit
from runnel.connect.ingest.units.unit_reader import UnitContext, UnitFiles, UnreadableReason
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.type_inference import (
    FilesWithBadRows,
    MisfitCounts,
    count_misfits,
    find_bad_rows,
    find_files_with_bad_rows,
    list_examples,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class MisfitCounter:
    """Counts the values of a unit that each possible conversion can't convert."""

    context: UnitContext
    columns: tuple[FileColumn, ...]
    choices: tuple[ColumnChoice, ...]

    def __call__(self, unit: FileUnit) -> MisfitCounts | tuple[UnreadableReason, ...]:
        """Return the counts; or the files that can't be read, if that was found only now."""
        with UnitFiles(self.context, unit) as files:
            if not files.has_files:
                return files.list_unreadable() or MisfitCounts.empty(self.choices)
            counts = files.read(lambda reader: self._count(files, reader), self.columns)
            return counts if counts is not None else files.list_unreadable()

    def _count(self, files: UnitFiles, reader: AnyReader) -> MisfitCounts:
        store_small_files(reader, files.files, files.shared_names)
        return count_misfits(files.con, reader, self.choices)


@dataclass(frozen=True)
class WrittenUnit:
    """What became of a unit: its data files, and its bad rows.

    `examples` are some of the bad rows, if they stop the ingest; `incomplete` are the names of files with bad rows.
    `unreadable` are files that can't be read, found only now: then nothing was written.
    """

    written: WrittenFiles = field(default_factory=WrittenFiles)
    dropped: int = 0
    set_aside: SetAside = field(default_factory=SetAside)
    examples: tuple[BadRow, ...] = ()
    incomplete: frozenset[str] = frozenset()
    unreadable: tuple[UnreadableReason, ...] = ()


@dataclass(frozen=True)
class UnitWriter:
    """Writes the rows of units for a version of the table, with one conversion for each column."""

    context: UnitContext
    columns: tuple[FileColumn, ...]
    choices: tuple[ColumnChoice, ...]
    metadata: "TableMetadata"

    def __call__(self, unit: FileUnit) -> WrittenUnit:
        """Write a unit. Writes nothing if its bad rows stop the ingest."""
        with UnitFiles(self.context, unit) as files:
            if not files.has_files:
                return WrittenUnit(unreadable=files.list_unreadable())
            written = files.read(lambda reader: self._write(files, reader), self.columns)
            return written if written is not None else WrittenUnit(unreadable=files.list_unreadable())

    def _write(self, files: UnitFiles, reader: AnyReader) -> WrittenUnit:
        source, paths = self.context.source, files.scratch.files_by_path
        store_small_files(reader, files.files, files.shared_names)
        inferred = find_bad_rows(files.con, reader, self.choices)
        if inferred.dropped and source.on_bad == "stop":
            examples = list_examples(files.con, reader, inferred, paths)
            return WrittenUnit(dropped=inferred.dropped, examples=tuple(examples))
        context, bad_files, set_aside = self.context, FilesWithBadRows(), SetAside()
        if inferred.dropped:
            bad_files = find_files_with_bad_rows(files.con, reader, inferred, paths)
            if source.on_bad == "quarantine":
                quarantine_output = QuarantineOutput(
                    context.files, context.run, context.quarantine, context.owners, context.shares_files
                )
                set_aside = quarantine_output.set_aside(files.con, reader, inferred, bad_files)
        output = RowOutput(
            context.files, self.metadata, paths, context.owners, files.shared_names, context.combines_files
        )
        written = write_batch_rows(files.con, reader, inferred, output)
        return WrittenUnit(written, inferred.dropped, set_aside, incomplete=bad_files.names)
