"""Open the files of a unit where it is worked on: fetch objects, convert formats, open the reader of the format."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import duckdb
import pyarrow as pa

from runnel import temp_dirs
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import FileColumn, ReaderOptions
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import (
    AnyReader,
    UnreadableFile,
    describe_unreadable,
    exclude_unreadable,
    find_damaged_files,
    inspect_files,
    open_reader,
    raise_if_out_of_memory,
)
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.ingest.bad_rows import QuarantineTarget
from runnel.connect.ingest.detect.local_files import drop_empty_files, fetch_objects
from runnel.connect.ingest.part_writer import list_small_files
from runnel.connect.ingest.read_request import build_request
from runnel.connect.ingest.units.file_splits import SplitOpener
from runnel.connect.ingest.units.file_unit import ByteRange, FileUnit
from runnel.connect.ingest.units.line_ranges import LineCounts, NotSplittable
from runnel.declare.model.flow import Source
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.warehouse_files import WarehouseFiles

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class UnitContext:
    """What every unit of one ingest, or of one load, needs; can be pickled.

    `owners` are the prefixes of data files, by path. `load_request` has the options of a load; those of an ingest are
    in the source. `combines_files` writes the rows of all files of a unit together; a file that can't be read stops it.
    Units write bad rows for `quarantine`, if it is given, instead of returning them.
    """

    source: Source
    files: WarehouseFiles
    run: str
    owners: Mapping[str, str]
    unreadable_names: Collection[str] = field(default_factory=frozenset)  # files that are skipped
    shares_files: bool = False  # small files of all units are so many that they share data files
    combines_files: bool = False  # rows are written together, whatever file they are from
    load_request: LoadRequest | None = None
    quarantine: QuarantineTarget | None = None

    @property
    def skips_unreadable(self) -> bool:
        """Tell whether a file that can't be read is skipped, instead of stopping the ingest."""
        return self.source.on_bad != "stop" and not self.combines_files

    def build_request(self, files: Sequence[LocalFile]) -> LoadRequest:
        """Return the request for some of the files."""
        if self.load_request is not None:
            return replace(self.load_request, files=tuple(files))
        return build_request(self.source, files)


@dataclass(frozen=True)
class UnreadableReason:
    """A file of a unit that can't be read, and why, as JSON of the error.

    With `is_split`, a split of it can't be read by itself: the whole file tells whether it is readable.
    """

    name: str
    error: Mapping[str, str | int | None]
    is_split: bool = False


class UnitFiles:
    """The opened files of a unit; `unreadable` are those that can't be read. Use it as a context manager.

    `line_counts` are those of a split of a file.
    """

    def __init__(self, context: UnitContext, unit: FileUnit) -> None:
        self._context = context
        self._stack = ExitStack()
        self._unit = unit
        self._is_undivided = False
        self.line_counts = LineCounts()

    def __enter__(self) -> "UnitFiles":
        context = self._context
        folder = Path(self._stack.enter_context(temp_dirs.create_scoped("unit")))
        self.con = self._stack.enter_context(connect_duckdb())
        self.scratch = self._stack.enter_context(ScratchFiles())
        names = context.unreadable_names
        requested_files = [file for file in self._unit.files if file.name not in names]
        if self._unit.byte_range is not None:
            self.empty_names: tuple[str, ...] = ()
            self._open_files(self._open_split(self._unit.files[0], self._unit.byte_range, folder))
            return self
        local_files = fetch_objects(requested_files, context.files.storage, folder)
        is_load = context.load_request is not None
        filled_files = local_files if is_load else drop_empty_files(context.source, local_files)
        filled_names = {file.name for file in filled_files}
        self.empty_names = tuple(file.name for file in local_files if file.name not in filled_names)
        self._open_files(filled_files)
        return self

    def _open_split(self, file: LocalFile, byte_range: ByteRange, folder: Path) -> list[LocalFile]:
        opener = SplitOpener(self._context.build_request([file]), self._context.files.storage, folder)
        try:
            split = opener.open(file, byte_range)
        except (NotSplittable, Mistake):
            self._is_undivided = True
            return []
        self.line_counts = split.counts
        return [split.file] if split.file is not None else []

    def _open_files(self, files: Sequence[LocalFile]) -> None:
        self.request = self._context.build_request(files)
        self.files, unreadable_files = inspect_files(self.con, self.request, self.scratch)
        self.unreadable = [*unreadable_files]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def open_reader(self, columns: tuple[FileColumn, ...] | None) -> AnyReader:
        """Return the reader of the readable files, with the columns that are settled, if they are."""
        files = exclude_unreadable(self.files, self.unreadable)
        expected = tuple(column.name for column in self.request.schema)
        return open_reader(self.con, self.request, files, self.scratch, ReaderOptions(expected, columns))

    @property
    def shared_names(self) -> frozenset[str]:
        """Return the names of the files whose rows share data files."""
        shares_files = self._context.shares_files and self._unit.byte_range is None
        return list_small_files(self._unit.files) if shares_files else frozenset()

    @property
    def has_files(self) -> bool:
        """Tell whether there is a file that can be read."""
        return bool(exclude_unreadable(self.files, self.unreadable))

    def read(self, read: Callable[[AnyReader], Answer], columns: tuple[FileColumn, ...] | None = None) -> Answer | None:
        """Return what `read` returns for the reader; None if files turn out to be damaged, which are noted."""
        try:
            return read(self.open_reader(columns))
        except (duckdb.Error, pa.ArrowException) as error:
            raise_if_out_of_memory(error, self.request)
            if self._unit.byte_range is not None:
                self._is_undivided, self.files = True, ()
                return None
            damaged_files: tuple[UnreadableFile, ...] = ()
            if self._context.skips_unreadable:
                files = exclude_unreadable(self.files, self.unreadable)
                damaged_files = find_damaged_files(self.con, self.request, files, self.scratch)
            if not damaged_files:
                raise describe_unreadable(error, self.request) from error
            self.unreadable += damaged_files
            return None

    def list_unreadable(self) -> tuple[UnreadableReason, ...]:
        """Return the files that can't be read; raise if that stops the ingest."""
        if self._unit.byte_range is not None:
            is_split_bad = bool(self._is_undivided or self.unreadable)
            return (UnreadableReason(self._unit.files[0].name, {}, is_split=True),) if is_split_bad else ()
        if self.unreadable and not self._context.skips_unreadable:
            raise self.unreadable[0].error
        return tuple(UnreadableReason(bad.file.name, bad.error.to_json_with_kind()) for bad in self.unreadable)
