"""Turn files into data files of a table's version: read, settled, checked, written or registered. Publishes nothing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile

from runnel.connect.files.file_patterns import unchanged
from runnel.connect.files.format_reader import Reader
from runnel.connect.files.load_request import DROP, Request
from runnel.connect.files.open_files import AnyReader, look_into, open_reader, unreadable
from runnel.connect.files.parquet import ParquetReader
from runnel.connect.files.scratch_files import Scratch
from runnel.connect.load import register_parquet, schema_updates
from runnel.connect.load.column_matching import Choice, choose
from runnel.connect.load.parallel_writer import write_rows
from runnel.connect.load.parquet_footers import FIX, data_file
from runnel.connect.load.partition_spec import same_partitions, spec_of
from runnel.connect.load.path_columns import PathReader, path_values
from runnel.connect.load.type_inference import Settled, refuse, settle
from runnel.errors import Mistake, listed
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.duckdb_types import duckdb_type, quoted

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

    from runnel.lake.store import Store

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Brought:
    """Data files that wait to be published onto the version `location`, together with `updates` of it."""

    location: str
    updates: "tuple[TableUpdate, ...]"
    files: tuple[DataFile, ...]
    rows: int
    dropped: int
    new_columns: tuple[str, ...]


def bring(store: "Store", request: Request, base: str | None, progress: Progress | None) -> Brought:
    """Bring the files of a request to the version `base` of its table, or to a new table."""
    schema = table_metadata.load(store, base).schema() if base else None
    with Scratch() as scratch, connect() as con:
        try:
            reader = _reader(con, request, scratch, schema)
            choices = choose(reader.columns, request.schema, schema, request.on_new_column, request.where)
            _tell(progress, "checking", 0, None)
            settled = _settled(con, reader, choices, request)
            if settled.dropped and (request.on_bad != DROP or request.in_place):
                raise refuse(con, _paths_or(reader, request), settled, scratch.files, request.where)
            location, metadata, updates = _target(store, request, base, settled.choices, reader)
            files, rows = _files(store, con, request, reader, settled, metadata, progress)
        except (duckdb.Error, pa.ArrowException) as error:
            raise unreadable(error, request) from error
    unchanged(request.files)
    new = tuple(choice.name for choice in settled.choices if choice.stored is None) if base else ()
    return Brought(location, updates, tuple(files), rows, settled.dropped, new)


def _reader(con: duckdb.DuckDBPyConnection, request: Request, scratch: Scratch, schema: "Schema | None") -> AnyReader:
    names = tuple(column.name for column in request.schema) or tuple(f.name for f in (schema.fields if schema else ()))
    request = replace(request, csv=replace(request.csv, names=names))
    files, unread = look_into(con, request, scratch)
    if unread:
        raise unread[0].error
    if not files:
        what = f"{request.where} has no rows"
        raise Mistake(
            "LOAD_FILE_EMPTY", what, at=request.where, fix="leave it out, or see why its writer wrote nothing"
        )
    return open_reader(con, request, files, scratch)


def _settled(con: duckdb.DuckDBPyConnection, reader: Reader, choices: Sequence[Choice], request: Request) -> Settled:
    if not request.in_place or not isinstance(reader, ParquetReader):
        return settle(con, reader, choices)
    footers = list(reader.footers.values())
    register_parquet.registrable(footers, choices)
    fixed = register_parquet.chosen_kinds(choices, footers)
    texts = [choice for choice in fixed if choice.incoming.kind is None]
    found = settle(con, _paths_or(reader, request), texts) if texts else Settled(())
    named = {choice.name: choice for choice in found.choices}
    return replace(found, choices=tuple(named.get(choice.name, choice) for choice in fixed))


def _paths_or(reader: Reader, request: Request) -> Reader:
    """Return what values are read from: for files that stay in place, their paths."""
    if not request.in_place or not isinstance(reader, ParquetReader):
        return reader
    texts = [column for column in reader.columns if column.kind is None]
    return PathReader(texts, list(reader.footers.values()))


def _target(
    store: "Store", request: Request, base: str | None, choices: Sequence[Choice], reader: Reader
) -> "tuple[str, TableMetadata, tuple[TableUpdate, ...]]":
    """Return the version to write for, created where there is none, and the updates that it needs."""
    in_paths = [choice.name for choice in choices if request.in_place and choice.incoming.kind is None]
    if base is None:
        schema = schema_updates.new_schema(choices)
        wanted = (*request.partition, *(name for name in in_paths if name not in request.partition))
        base, metadata = table_metadata.create(store, request.table, schema, spec=spec_of(wanted, schema))
        updates: tuple[TableUpdate, ...] = ()
    else:
        metadata = table_metadata.load(store, base)
        _partitions_fit(request, metadata, in_paths)
        updates = schema_updates.schema_updates(store, request.table, base, choices)
        metadata = schema_updates.evolved(metadata, updates)
    properties = schema_updates.key_property(request.key, metadata.schema())
    if request.in_place and isinstance(reader, ParquetReader):
        properties |= register_parquet.name_mapping(metadata, choices, list(reader.footers.values()))
    more = schema_updates.property_updates(metadata, properties)
    return base, schema_updates.evolved(metadata, more), (*updates, *more)


def _partitions_fit(request: Request, metadata: "TableMetadata", in_paths: Sequence[str]) -> None:
    """Refuse to partition a table that exists in another way."""
    if request.partition and not same_partitions(metadata.spec(), spec_of(request.partition, metadata.schema())):
        parts = ", ".join(f"{part.transform}({part.name})" for part in metadata.spec().fields) or "not at all"
        what = f"`{request.table}` is partitioned otherwise: {parts}"
        raise Mistake("LOAD_PARTITION", what, fix="leave --partition out: it counts when a table is created")
    known = {part.name.lower() for part in metadata.spec().fields}
    other = [name for name in in_paths if name.lower() not in known]
    if other:
        what = f"the paths of {request.where} name {listed(other)}, by which `{request.table}` is not partitioned"
        raise Mistake("LOAD_IN_PLACE_PARTITION", what, at=request.files[0].name, fix=FIX)


def _files(
    store: "Store",
    con: duckdb.DuckDBPyConnection,
    request: Request,
    reader: Reader,
    settled: Settled,
    metadata: "TableMetadata",
    progress: Progress | None,
) -> tuple[list[DataFile], int]:
    if request.in_place and isinstance(reader, ParquetReader):
        return _registered(con, reader, settled, metadata), reader.count
    total = reader.count if isinstance(reader, ParquetReader) else None
    stored = {choice.name: choice.tries[0].value for choice in settled.choices}
    columns = ", ".join(
        f"{stored.get(field.name, f'CAST(NULL AS {duckdb_type(field.field_type)})')} AS {quoted(field.name)}"
        for field in metadata.schema().fields
    )
    rows = con.sql(f"SELECT {columns} FROM ({reader.rows()}) WHERE {settled.condition}")
    batches = rows.to_arrow_reader(ROW_GROUP_ROWS)
    return write_rows(
        store, metadata, cast(Iterable[pa.RecordBatch], batches), lambda done: _tell(progress, "writing", done, total)
    )


def _registered(
    con: duckdb.DuckDBPyConnection, reader: ParquetReader, settled: Settled, metadata: "TableMetadata"
) -> list[DataFile]:
    footers = [found for found in reader.footers.values() if found.metadata.num_rows]
    texts = [column for column in reader.columns if column.kind is None]
    in_paths = path_values(con, PathReader(texts, footers), settled.choices)
    for found in footers:
        register_parquet.ids_fit(metadata, found)
    return [data_file(metadata, found, in_paths.get(found.file.path, {})) for found in footers]


def _tell(progress: Progress | None, what: str, done: int, total: int | None) -> None:
    if progress is not None:
        progress(what, done, total)
