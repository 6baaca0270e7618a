"""Turn files into data files of a table version: read, infer types, check, write or register. Publishes nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile

from runnel.connect.files.file_patterns import check_unchanged
from runnel.connect.files.format_reader import FormatReader, ReaderOptions
from runnel.connect.files.load_request import DROP, LoadRequest
from runnel.connect.files.open_files import AnyReader, describe_unreadable, inspect_files, open_reader
from runnel.connect.files.parquet import ParquetReader
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.load import register_parquet, schema_updates
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.parallel_writer import write_rows
from runnel.connect.load.parquet_footers import IN_PLACE_FIX, build_data_file
from runnel.connect.load.partition_spec import is_same_partitioning, parse_partition_spec
from runnel.connect.load.path_columns import PathReader, read_path_values
from runnel.connect.load.type_inference import InferredTypes, describe_bad_rows, infer_types
from runnel.errors import Mistake, join_names
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.model.progress import Progress
from runnel.model.work_place import WorkPlace

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from runnel.lake.store import Store


@dataclass(frozen=True)
class PreparedLoad:
    """Data files that are ready to be published onto the version `location`, together with its metadata `updates`."""

    location: str
    updates: "tuple[TableUpdate, ...]"
    files: tuple[DataFile, ...]
    rows: int
    dropped: int
    new_columns: tuple[str, ...]
    place: WorkPlace | None = None  # where the files were read; None if there was no choice


def prepare_load(
    store: "Store", request: LoadRequest, base: str | None, report_progress: Progress | None
) -> PreparedLoad:
    """Write the files of a request as data files for the version `base` of its table, or for a new table."""
    schema = table_metadata.load_metadata(store, base).schema() if base else None
    with ScratchFiles() as scratch, connect_duckdb() as con:
        try:
            reader = open_request(con, request, scratch, schema)
            choices = match_columns(reader.columns, request.schema, schema, request.on_new_column, request.files_label)
            _report(report_progress, "checking", 0, None)
            inferred = _infer_types(con, reader, choices, request)
            if inferred.dropped and (request.on_bad != DROP or request.in_place):
                raise describe_bad_rows(
                    con, _value_reader(reader, request), inferred, scratch.files_by_path, request.files_label
                )
            location, metadata, updates = prepare_target(store, request, base, inferred.choices, reader)
            files, rows = _write_data_files(
                store, con, request, reader, inferred, metadata=metadata, report_progress=report_progress
            )
        except (duckdb.Error, pa.ArrowException) as error:
            raise describe_unreadable(error, request) from error
    check_unchanged(request.files)
    new_columns = list_new_columns(inferred.choices, base)
    return PreparedLoad(location, updates, tuple(files), rows, inferred.dropped, new_columns)


def open_request(
    con: duckdb.DuckDBPyConnection, request: LoadRequest, scratch: ScratchFiles, schema: "Schema | None" = None
) -> AnyReader:
    """Return the reader of all files of a request; raise if one of them can't be read. `schema` is the table's."""
    request = use_table_names(request, schema)
    files, unreadable_files = inspect_files(con, request, scratch)
    if unreadable_files:
        raise unreadable_files[0].error
    if not files:
        raise describe_empty_files(request)
    expected = tuple(column.name for column in request.schema) if request.allows_missing_columns else ()
    return open_reader(con, request, files, scratch, ReaderOptions(expected))


def use_table_names(request: LoadRequest, schema: "Schema | None") -> LoadRequest:
    """Return a request that names the columns of CSV files without a header: as declared, or as in the table."""
    names = tuple(column.name for column in request.schema) or tuple(f.name for f in (schema.fields if schema else ()))
    return replace(request, csv=replace(request.csv, names=names))


def describe_empty_files(request: LoadRequest) -> Mistake:
    """Return the error for files of which none has rows."""
    what = f"{request.files_label} has no rows"
    return Mistake(
        "LOAD_FILE_EMPTY", what, at=request.files_label, fix="leave it out, or see why its writer wrote nothing"
    )


def list_new_columns(choices: Sequence[ColumnChoice], base: str | None) -> tuple[str, ...]:
    """Return the columns that an existing table gains."""
    return tuple(choice.name for choice in choices if choice.stored is None) if base else ()


def _infer_types(
    con: duckdb.DuckDBPyConnection, reader: FormatReader, choices: Sequence[ColumnChoice], request: LoadRequest
) -> InferredTypes:
    if not request.in_place or not isinstance(reader, ParquetReader):
        return infer_types(con, reader, choices)
    footers = list(reader.footers.values())
    register_parquet.check_registrable(footers, choices)
    file_choices = register_parquet.choose_file_types(choices, footers)
    path_choices = [choice for choice in file_choices if choice.file_column.kind is None]
    inferred = infer_types(con, _value_reader(reader, request), path_choices) if path_choices else InferredTypes(())
    choices_by_name = {choice.name: choice for choice in inferred.choices}
    return replace(inferred, choices=tuple(choices_by_name.get(choice.name, choice) for choice in file_choices))


def _value_reader(reader: FormatReader, request: LoadRequest) -> FormatReader:
    """Return the reader that values are checked with: for files registered in place, only their paths are read."""
    if not request.in_place or not isinstance(reader, ParquetReader):
        return reader
    path_columns = [column for column in reader.columns if column.kind is None]
    return PathReader(path_columns, list(reader.footers.values()))


def prepare_target(
    store: "Store", request: LoadRequest, base: str | None, choices: Sequence[ColumnChoice], reader: FormatReader | None
) -> "tuple[str, TableMetadata, tuple[TableUpdate, ...]]":
    """Return the version to write for, created if there is none, and the metadata updates that it needs.

    `reader` has the footers of files that are registered in place.
    """
    path_columns = [choice.name for choice in choices if request.in_place and choice.file_column.kind is None]
    if base is None:
        schema = schema_updates.create_schema(choices)
        partition_columns = (*request.partition, *(name for name in path_columns if name not in request.partition))
        base, metadata = table_metadata.create_table(
            store, request.table, schema, spec=parse_partition_spec(partition_columns, schema)
        )
        updates: tuple[TableUpdate, ...] = ()
    else:
        metadata = table_metadata.load_metadata(store, base)
        _check_partitions(request, metadata, path_columns)
        updates = schema_updates.plan_schema_updates(store, request.table, base, choices)
        metadata = schema_updates.apply_updates(metadata, updates)
    properties = schema_updates.build_key_property(request.key, metadata.schema())
    if request.in_place and isinstance(reader, ParquetReader):
        properties |= register_parquet.build_name_mapping(metadata, choices, list(reader.footers.values()))
    property_changes = schema_updates.plan_property_updates(metadata, properties)
    return base, schema_updates.apply_updates(metadata, property_changes), (*updates, *property_changes)


def _check_partitions(request: LoadRequest, metadata: "TableMetadata", path_columns: Sequence[str]) -> None:
    """Refuse a partitioning that differs from the one the existing table has."""
    if request.partition and not is_same_partitioning(
        metadata.spec(), parse_partition_spec(request.partition, metadata.schema())
    ):
        parts = ", ".join(f"{part.transform}({part.name})" for part in metadata.spec().fields) or "not at all"
        what = f"`{request.table}` is partitioned differently: {parts}"
        raise Mistake("LOAD_PARTITION", what, fix="leave --partition out: it applies only when a table is created")
    partition_names = {part.name.lower() for part in metadata.spec().fields}
    unpartitioned = [name for name in path_columns if name.lower() not in partition_names]
    if unpartitioned:
        what = (
            f"the paths of {request.files_label} name {join_names(unpartitioned)}, "
            f"by which `{request.table}` is not partitioned"
        )
        raise Mistake("LOAD_IN_PLACE_PARTITION", what, at=request.files[0].name, fix=IN_PLACE_FIX)


def _write_data_files(
    store: "Store",
    con: duckdb.DuckDBPyConnection,
    request: LoadRequest,
    reader: FormatReader,
    inferred: InferredTypes,
    *,
    metadata: "TableMetadata",
    report_progress: Progress | None,
) -> tuple[list[DataFile], int]:
    if request.in_place and isinstance(reader, ParquetReader):
        return _register_files(con, reader, inferred, metadata), reader.row_count
    total = reader.row_count if isinstance(reader, ParquetReader) else None
    stored_values = {choice.name: choice.conversions[0].value for choice in inferred.choices}
    columns = ", ".join(
        f"{stored_values.get(field.name, f'CAST(NULL AS {to_duckdb_type(field.field_type)})')} "
        f"AS {quote_identifier(field.name)}"
        for field in metadata.schema().fields
    )
    rows = con.sql(f"SELECT {columns} FROM ({reader.build_select()}) WHERE {inferred.good_row_sql}")
    batches = rows.to_arrow_reader(ROW_GROUP_ROWS)
    return write_rows(
        store,
        metadata,
        cast(Iterable[pa.RecordBatch], batches),
        lambda row_count: _report(report_progress, "writing", row_count, total),
    )


def _register_files(
    con: duckdb.DuckDBPyConnection, reader: ParquetReader, inferred: InferredTypes, metadata: "TableMetadata"
) -> list[DataFile]:
    footers = [footer for footer in reader.footers.values() if footer.metadata.num_rows]
    path_columns = [column for column in reader.columns if column.kind is None]
    values_by_path = read_path_values(con, PathReader(path_columns, footers), inferred.choices)
    for footer in footers:
        register_parquet.check_field_ids(metadata, footer)
    return [build_data_file(metadata, footer, values_by_path.get(footer.file.path, {})) for footer in footers]


def _report(report_progress: Progress | None, activity: str, done_count: int, total: int | None) -> None:
    if report_progress is not None:
        report_progress(activity, done_count, total)
