"""Read a batch of files with DuckDB, like a load, into data files for a version of the source's table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import (
    AnyReader,
    UnreadableFile,
    describe_unreadable,
    exclude_unreadable,
    find_damaged_files,
    inspect_files,
    open_reader,
)
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.ingest.bad_rows import build_quarantined_rows
from runnel.connect.ingest.column_check import check_columns, require_values, restore_required
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.part_writer import DataFilesByPath, split_by_path, write_parts
from runnel.connect.ingest.read_request import build_request
from runnel.connect.ingest.target_version import WriteTarget, create_target, evolve_target
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.quarantine import QuarantinedRow
from runnel.connect.load.type_inference import InferredTypes, describe_bad_rows, find_files_with_bad_rows, infer_types
from runnel.declare.model.flow import Source
from runnel.internal_names import internal_column
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store

_PATH_COLUMN = internal_column("path")


@dataclass(frozen=True)
class IngestBatch:
    """Data files that are ready to be staged onto `target`, by the path that their rows came from.

    `unread_reasons` tell why files were skipped; `dropped` counts the bad rows. `incomplete` are the paths of files
    that were skipped or have bad rows.
    """

    target: WriteTarget
    data_files: DataFilesByPath = field(default_factory=dict)
    dropped: int = 0
    quarantined_rows: tuple[QuarantinedRow, ...] = ()
    new_columns: tuple[str, ...] = ()
    unread_reasons: tuple[str, ...] = ()
    incomplete: frozenset[str] = frozenset()


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
) -> IngestBatch:
    """Read files, none of them empty, for the target's version or, with `from_scratch`, for a recreated table.

    The rows of each file are written to data files of their own, so that they can be replaced later; `combine_files`
    writes them together. The names of a file's data files start with its owner, if `owners` has one.

    A file that can't be read at all raises; with `skip_unreadable` it is skipped, and handled by the source's `on_bad`.
    """
    store, source, base = ingest_target.store, ingest_target.source, ingest_target.base
    request = build_request(source, files)
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
                return _add_unreadable_files(
                    IngestBatch(prepare_target(store, source, (), base, from_scratch=from_scratch)),
                    unreadable_files,
                    ingest_target,
                )
            try:
                reader = open_reader(con, request, readable_files, scratch, [column.name for column in request.schema])
                rejected_files = check_columns(
                    reader, source, [column.name for column in schema.fields] if schema else []
                )
                if not rejected_files:
                    batch_reader = _BatchReader(
                        ingest_target, request, schema, from_scratch, combine_files, owners or {}
                    )
                    return _add_unreadable_files(
                        batch_reader.read(con, reader, scratch), unreadable_files, ingest_target
                    )
            except (duckdb.Error, pa.ArrowException) as error:
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
    owners: Mapping[str, str]

    def read(self, con: duckdb.DuckDBPyConnection, reader: AnyReader, scratch: ScratchFiles) -> IngestBatch:
        ingest_target, source, files_label = self.ingest_target, self.ingest_target.source, self.request.files_label
        choices = match_columns(reader.columns, self.request.schema, self.schema, source.on_new_column, files_label)
        ingest_target.report("checking", 0)
        inferred = infer_types(con, reader, require_values(choices, source))
        if inferred.dropped and source.on_bad == "stop":
            raise describe_bad_rows(con, reader, inferred, scratch.files_by_path, files_label)
        should_quarantine = source.on_bad == "quarantine" and inferred.dropped
        quarantined_rows = (
            build_quarantined_rows(con, reader, inferred, scratch.files_by_path, ingest_target.run)
            if should_quarantine
            else []
        )
        incomplete = (
            find_files_with_bad_rows(con, reader, inferred, scratch.files_by_path) if inferred.dropped else frozenset()
        )
        table_choices = restore_required(inferred.choices, choices)
        target = prepare_target(
            ingest_target.store, source, table_choices, ingest_target.base, from_scratch=self.from_scratch
        )
        data_files = self._write_rows(con, reader, inferred, target, scratch)
        new_columns = tuple(choice.name for choice in inferred.choices if choice.stored is None) if self.schema else ()
        return IngestBatch(
            target, data_files, inferred.dropped, tuple(quarantined_rows), new_columns, incomplete=incomplete
        )

    def _write_rows(
        self,
        con: duckdb.DuckDBPyConnection,
        reader: AnyReader,
        inferred: InferredTypes,
        target: WriteTarget,
        scratch: ScratchFiles,
    ) -> DataFilesByPath:
        """Write the good rows as data files of the target, and return them by the path that they came from."""
        stored_values = {choice.name: choice.conversions[0].value for choice in inferred.choices}
        columns = [
            f"{stored_values.get(field.name, f'CAST(NULL AS {to_duckdb_type(field.field_type)})')} "
            f"AS {quote_identifier(field.name)}"
            for field in target.metadata.schema().fields
        ]
        select = ", ".join([*columns, f"file AS {quote_identifier(_PATH_COLUMN)}"])
        rows = con.sql(f"SELECT {select} FROM ({reader.build_select()}) WHERE {inferred.good_row_sql}")
        batches = cast(Iterable[pa.RecordBatch], rows.to_arrow_reader(ROW_GROUP_ROWS))
        named_parts = (
            ("" if self.combine_files else scratch.files_by_path[path].name, part)
            for path, part in split_by_path(batches)
        )
        return write_parts(
            self.ingest_target.store,
            target.metadata,
            named_parts,
            lambda row_count: self.ingest_target.report("reading", row_count),
            self.owners,
        )


def _add_unreadable_files(
    batch: IngestBatch, unreadable_files: Sequence[UnreadableFile], ingest_target: IngestTarget
) -> IngestBatch:
    """Return a batch with the skipped files; each is one quarantined row if `on_bad` is "quarantine"."""
    at = datetime.now(UTC)
    rows = [
        QuarantinedRow(None, unreadable_file.error.what, unreadable_file.file.name, ingest_target.run, at)
        for unreadable_file in unreadable_files
    ]
    should_quarantine = ingest_target.source.on_bad == "quarantine"
    quarantined_rows = (*batch.quarantined_rows, *rows) if should_quarantine else batch.quarantined_rows
    incomplete = batch.incomplete | {unreadable_file.file.name for unreadable_file in unreadable_files}
    return replace(
        batch,
        quarantined_rows=quarantined_rows,
        unread_reasons=tuple(unreadable_file.error.what for unreadable_file in unreadable_files),
        incomplete=incomplete,
    )
