"""Read a batch of files with DuckDB, like a load, into data files for a version of the source's table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import JSON, XML, LocalFile
from runnel.connect.files.format_reader import ReaderOptions
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
from runnel.connect.ingest.bad_rows import QuarantineOutput, QuarantineTarget, SetAside
from runnel.connect.ingest.batch_warnings import Suggest, warn_of_first_types, warn_of_no_rows, warn_of_unreadable
from runnel.connect.ingest.column_check import check_columns, require_values, restore_required
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.part_writer import WrittenFiles, choose_shared_files, split_by_path, write_parts
from runnel.connect.ingest.read_request import build_request
from runnel.connect.ingest.target_version import WriteTarget, create_target, evolve_target
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.connect.load.suggest.option_suggestion import add_suggestion, describe_suggestion, suggest_options
from runnel.connect.load.type_inference import (
    FilesWithBadRows,
    InferredTypes,
    describe_bad_rows,
    find_files_with_bad_rows,
    infer_types,
)
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError
from runnel.internal_names import internal_column
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.data_file_owners import make_owner_prefix
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.model.work_place import WorkPlace

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.lake.warehouse_files import FileAccess

_MAX_STORED_BYTES = 256 * 1024 * 1024
_PATH_COLUMN = internal_column("path")


def _ignore_rows(_row_count: int) -> None:
    """Ignore how many rows were written."""


@dataclass(frozen=True)
class RowOutput:
    """Where rows are written: as data files for a version with this `metadata`, whose names start with `owners`.

    `files_by_path` are the source's files by the path that they are read from. Rows of files of `shared_names` share
    data files; with `combines_files` all rows are written together.
    """

    files: "FileAccess"
    metadata: "TableMetadata"
    files_by_path: Mapping[str, LocalFile]
    owners: Mapping[str, str]
    shared_names: frozenset[str] = frozenset()
    combines_files: bool = False
    report_rows: Callable[[int], None] = _ignore_rows


@dataclass(frozen=True)
class IngestBatch:
    """Data files that are ready to be staged onto `target`.

    `unread_reasons` tell why files were skipped; `dropped` counts the bad rows. `incomplete` are the paths of files
    that were skipped or have bad rows. `place` is where the files were read.
    """

    target: WriteTarget
    written: WrittenFiles = field(default_factory=WrittenFiles)
    dropped: int = 0
    set_aside: SetAside = field(default_factory=SetAside)
    new_columns: tuple[str, ...] = ()
    unread_reasons: tuple[str, ...] = ()
    incomplete: frozenset[str] = frozenset()
    place: WorkPlace | None = None
    warnings: tuple[str, ...] = ()


def prepare_target(
    store: "Store", source: Source, choices: Sequence[ColumnChoice], base: str | None, *, from_scratch: bool
) -> WriteTarget:
    """Return the version to write for; with `from_scratch`, a new version of the table with the chosen columns."""
    if from_scratch or base is None:
        return create_target(store, source, choices, base)
    return evolve_target(store, source, choices, base)


def read_batch(
    ingest_target: IngestTarget,
    files: Sequence[LocalFile],
    *,
    from_scratch: bool,
    skip_unreadable: bool = False,
    combine_files: bool = False,
    owners: Mapping[str, str] | None = None,
    quarantine: QuarantineTarget | None = None,
) -> IngestBatch:
    """Read files, none of them empty, for the target's version or, with `from_scratch`, for a recreated table.

    The rows of each file can be replaced later: they are written to data files of their own, or are found by their
    owner, which `owners` may have, in a data file that many small files share. `combine_files` writes rows together.
    Bad rows that are set aside are written for `quarantine`, if it is given.

    A file that can't be read at all raises; with `skip_unreadable` it is skipped, and handled by the source's `on_bad`.
    """
    request = build_request(ingest_target.source, files)
    # Rows that are not read from files of the user's are combined; `rn.files` and its options don't concern them.
    with nullcontext() if combine_files else suggest_missing_options(request):
        return _read_request(
            ingest_target,
            request,
            from_scratch=from_scratch,
            skip_unreadable=skip_unreadable,
            combine_files=combine_files,
            owners=owners or {},
            quarantine=quarantine,
        )


def _read_request(
    ingest_target: IngestTarget,
    request: LoadRequest,
    *,
    from_scratch: bool,
    skip_unreadable: bool,
    combine_files: bool,
    owners: Mapping[str, str],
    quarantine: QuarantineTarget | None,
) -> IngestBatch:
    store, source, base = ingest_target.store, ingest_target.source, ingest_target.base
    schema = table_metadata.load_metadata(store, base).schema() if base is not None and not from_scratch else None
    with ScratchFiles() as scratch, connect_duckdb() as con:
        readable_files, unreadable_files = inspect_files(con, request, scratch)
        while True:
            if unreadable_files and not skip_unreadable:
                raise unreadable_files[0].error
            readable_files = exclude_unreadable(readable_files, unreadable_files)
            if not readable_files and unreadable_files and base is None and not request.schema:
                raise unreadable_files[0].error  # no file tells which columns there are
            if not readable_files:
                return add_unreadable_files(
                    IngestBatch(prepare_target(store, source, (), base, from_scratch=from_scratch)),
                    unreadable_files,
                    ingest_target,
                )
            try:
                expected = tuple(column.name for column in request.schema)
                reader = open_reader(con, request, readable_files, scratch, ReaderOptions(expected))
                rejected_files = check_columns(
                    reader, source, [column.name for column in schema.fields] if schema else []
                )
                if not rejected_files:
                    quarantine_output = QuarantineOutput(store, ingest_target.run, quarantine, owners)
                    batch_reader = _BatchReader(
                        ingest_target, request, schema, from_scratch, combine_files, quarantine_output
                    )
                    return add_unreadable_files(
                        batch_reader.read(con, reader, scratch), unreadable_files, ingest_target
                    )
            except (duckdb.Error, pa.ArrowException) as error:
                raise_if_out_of_memory(error, request)
                rejected_files = find_damaged_files(con, request, readable_files, scratch) if skip_unreadable else ()
                if not rejected_files:
                    raise describe_unreadable(error, request) from error
            unreadable_files = (*unreadable_files, *rejected_files)


@dataclass(frozen=True)
class _BatchReader:
    """Reads readable files into data files of a table."""

    ingest_target: IngestTarget
    request: LoadRequest
    schema: "Schema | None"
    from_scratch: bool
    combine_files: bool
    quarantine: QuarantineOutput

    def read(self, con: duckdb.DuckDBPyConnection, reader: AnyReader, scratch: ScratchFiles) -> IngestBatch:
        ingest_target, source, files_label = self.ingest_target, self.ingest_target.source, self.request.files_label
        shared_names = self._choose_shared_files()
        store_small_files(reader, self.request.files, shared_names)
        choices = match_columns(reader.columns, self.request.schema, self.schema, source.on_new_column, files_label)
        check_place_of_rows(self.request, self.schema, choices)
        ingest_target.report("checking", 0)
        inferred = infer_types(con, reader, require_values(choices, source))
        if inferred.dropped and source.on_bad == "stop":
            raise describe_bad_rows(con, reader, inferred, scratch.files_by_path, files_label)
        bad_files, set_aside = FilesWithBadRows(), SetAside()
        if inferred.dropped:
            bad_files = find_files_with_bad_rows(con, reader, inferred, scratch.files_by_path)
            if source.on_bad == "quarantine":
                set_aside = self.quarantine.set_aside(con, reader, inferred, bad_files)
        table_choices = restore_required(inferred.choices, choices)
        target = prepare_target(
            ingest_target.store, source, table_choices, ingest_target.base, from_scratch=self.from_scratch
        )
        output = RowOutput(
            ingest_target.store,
            target.metadata,
            scratch.files_by_path,
            self.quarantine.owners,
            shared_names,
            self.combine_files,
            lambda row_count: ingest_target.report("reading", row_count),
        )
        written = write_batch_rows(con, reader, inferred, output)
        batch = IngestBatch(
            target,
            written,
            inferred.dropped,
            set_aside,
            list_new_columns(self.schema, self.request, inferred.choices),
            incomplete=bad_files.names,
        )
        if self.combine_files:
            return batch
        needs = warn_of_first_types(source, self.request, inferred.choices) if self.schema is None else ()
        return replace(batch, warnings=(*warn_of_no_rows(self.request, batch), *needs))

    def _choose_shared_files(self) -> frozenset[str]:
        """Return the names of files that share data files, in which each still has an owner."""
        return frozenset() if self.combine_files else choose_shared_files(self.request.files)


def list_new_columns(schema: "Schema | None", request: LoadRequest, choices: Sequence[ColumnChoice]) -> tuple[str, ...]:
    """Return the columns that the table gains; those of a new table, if they are not declared."""
    if schema is None and not request.schema:
        return ()
    declared = {column.name.lower() for column in request.schema} if schema is None else set()
    new_names = [choice.name for choice in choices if choice.stored is None]
    return tuple(name for name in new_names if name.lower() not in declared)


def check_place_of_rows(request: LoadRequest, schema: "Schema | None", choices: Sequence[ColumnChoice]) -> None:
    """Raise if a new table would get the top level of a document, whose rows are further inside."""
    if schema is not None or request.format not in (JSON, XML):
        return
    new_columns = list_new_columns(schema, request, choices)
    suggested = suggest_options(request, request.files[0]) if new_columns else None
    if suggested is not None and {"records", "row_tag"} & dict(suggested.options).keys():
        name = request.files[0].name
        what = f"{name} has none of the declared columns at its top level, which has {', '.join(new_columns)}"
        fix = describe_suggestion(suggested, is_source=True)
        raise Mistake("LOAD_COLUMNS_UNKNOWN", what, at=name, fix=fix)


@contextmanager
def suggest_missing_options(request: LoadRequest) -> Iterator[None]:
    """Name in errors about files all options that they need."""
    try:
        yield
    except RunnelError as error:
        improved = add_suggestion(error, request, is_source=True)
        if improved is error:
            raise
        raise improved from error


def write_batch_rows(
    con: duckdb.DuckDBPyConnection, reader: AnyReader, inferred: InferredTypes, output: RowOutput
) -> WrittenFiles:
    """Write the good rows as data files."""
    stored_values = {choice.name: choice.conversions[0].value for choice in inferred.choices}
    columns = [
        f"{stored_values.get(field.name, f'CAST(NULL AS {to_duckdb_type(field.field_type)})')} "
        f"AS {quote_identifier(field.name)}"
        for field in output.metadata.schema().fields
    ]
    select = ", ".join([*columns, f"file AS {quote_identifier(_PATH_COLUMN)}"])
    rows = con.sql(f"SELECT {select} FROM ({reader.build_select()}) WHERE {inferred.good_row_sql}")
    batches = cast(Iterable[pa.RecordBatch], rows.to_arrow_reader(ROW_GROUP_ROWS))
    parts = split_by_path(
        batches,
        lambda path: "" if output.combines_files else output.files_by_path[path].name,
        output.shared_names,
    )
    names = {file.name for file in output.files_by_path.values()}
    owners = {name: output.owners.get(name) or make_owner_prefix(name) for name in names}
    return write_parts(output.files, output.metadata, parts, output.report_rows, owners)


def store_small_files(reader: AnyReader, files: Sequence[LocalFile], shared_names: frozenset[str]) -> None:
    """Open many small files once; rows are read at least twice: to check them, and to write them."""
    if isinstance(reader, CsvReader) and shared_names and sum(file.bytes for file in files) <= _MAX_STORED_BYTES:
        reader.store_rows()


def add_unreadable_files(
    batch: IngestBatch,
    unreadable_files: Sequence[UnreadableFile],
    ingest_target: IngestTarget,
    suggest: Suggest = suggest_options,
) -> IngestBatch:
    """Return a batch with the skipped files; each is one quarantined row if `on_bad` is "quarantine"."""
    at = datetime.now(UTC)
    rows = tuple(
        QuarantinedRow(None, unreadable_file.error.what, unreadable_file.file.name, ingest_target.run, at)
        for unreadable_file in unreadable_files
    )
    set_aside = batch.set_aside
    if ingest_target.source.on_bad == "quarantine":
        set_aside = replace(set_aside, rows=(*set_aside.rows, *rows))
    incomplete = batch.incomplete | {unreadable_file.file.name for unreadable_file in unreadable_files}
    return replace(
        batch,
        set_aside=set_aside,
        unread_reasons=tuple(unreadable_file.error.what for unreadable_file in unreadable_files),
        incomplete=incomplete,
        warnings=(*batch.warnings, *warn_of_unreadable(ingest_target.source, unreadable_files, suggest)),
    )
