"""Read a batch of files with DuckDB, as a load does, into data files of a version of the source's table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from runnel.connect.bring import unreadable
from runnel.connect.csv import CsvReader, check_options
from runnel.connect.fit import Choice, choose
from runnel.connect.globs import CSV, JSONL, File
from runnel.connect.ingest.bad import set_aside
from runnel.connect.ingest.columns import AnyReader, check_columns
from runnel.connect.ingest.parts import Made, by_path, write_parts
from runnel.connect.ingest.reading import Progress
from runnel.connect.ingest.target import Target, created, evolved
from runnel.connect.jsonl import JsonReader
from runnel.connect.parquet import ParquetReader
from runnel.connect.quarantine import Aside
from runnel.connect.reader import CsvOptions
from runnel.connect.request import Request
from runnel.connect.scratch import Scratch
from runnel.connect.settle import Settled, refuse, settle
from runnel.declare.flow import Files, Source
from runnel.lake import tables
from runnel.lake.datafiles import ROW_GROUP_ROWS
from runnel.lake.duck import connect
from runnel.lake.duckdb_types import duckdb_type, quoted

if TYPE_CHECKING:
    from runnel.lake.store import Store

_PATH = "runnel path"  # no user's column is called that


@dataclass(frozen=True)
class Batch:
    """Data files that wait to be staged onto `target`, by the path that their rows came from."""

    target: Target
    made: Made = field(default_factory=dict)
    dropped: int = 0
    asides: tuple[Aside, ...] = ()
    new_columns: tuple[str, ...] = ()


def target_of(store: "Store", source: Source, choices: Sequence[Choice], base: str | None, *, is_anew: bool) -> Target:
    """Return what to write for; anew, the table starts over with what is chosen."""
    if is_anew or base is None:
        return created(store, source, choices, base)
    return evolved(store, source, choices, base)


def read_batch(
    store: "Store",
    source: Source,
    files: Sequence[File],
    base: str | None,
    run: str,
    progress: Progress | None,
    *,
    is_anew: bool,
) -> Batch:
    """Read files, none of them empty, for the version `base` or, `is_anew`, for a table that starts over."""
    request = _request(source, files)
    schema = tables.load(store, base).schema() if base is not None and not is_anew else None
    with Scratch() as scratch, connect() as con:
        try:
            reader = _reader(con, request, scratch)
            check_columns(reader, source, [column.name for column in schema.fields] if schema else [])
            choices = choose(reader.columns, request.schema, schema, source.on_new_column, request.where)
            _tell(progress, "checking", 0)
            settled = settle(con, reader, choices)
            if settled.dropped and source.on_bad == "stop":
                raise refuse(con, reader, settled, scratch.files, request.where)
            aside = source.on_bad == "quarantine" and settled.dropped
            asides = set_aside(con, reader, settled, scratch.files, run) if aside else []
            target = target_of(store, source, settled.choices, base, is_anew=is_anew)
            made = _written(store, con, reader, settled, target, scratch, progress)
        except (duckdb.Error, pa.ArrowException) as error:
            raise unreadable(error, request) from error
    new = tuple(choice.name for choice in settled.choices if choice.stored is None) if schema else ()
    return Batch(target, made, settled.dropped, tuple(asides), new)


def _request(source: Source, files: Sequence[File]) -> Request:
    origin = source.origin
    assert isinstance(origin, Files)
    schema = origin.schema or ()
    csv = _csv_options(origin, tuple(column.name for column in schema))
    check_options(csv)
    return Request(table=source.table, files=tuple(files), format=origin.format, schema=schema, csv=csv)


def _csv_options(origin: Files, names: tuple[str, ...]) -> CsvOptions:
    given = dict(origin.options)
    return CsvOptions(
        delimiter=given.get("delimiter"),
        header=given.get("header", "true").lower() != "false",
        null=given.get("null", ""),
        quote=given.get("quote", '"'),
        encoding=given.get("encoding", "utf-8"),
        names=names,
    )


def _reader(con: duckdb.DuckDBPyConnection, request: Request, scratch: Scratch) -> AnyReader:
    if request.format == CSV:
        return CsvReader(con, request.files, scratch, request.csv)
    if request.format == JSONL:
        return JsonReader(con, request.files, scratch, [column.name for column in request.schema])
    return ParquetReader(request.files, scratch)


def _written(
    store: "Store",
    con: duckdb.DuckDBPyConnection,
    reader: AnyReader,
    settled: Settled,
    target: Target,
    scratch: Scratch,
    progress: Progress | None,
) -> Made:
    stored = {choice.name: choice.tries[0].value for choice in settled.choices}
    columns = [
        f"{stored.get(field.name, f'CAST(NULL AS {duckdb_type(field.field_type)})')} AS {quoted(field.name)}"
        for field in target.metadata.schema().fields
    ]
    select = ", ".join([*columns, f"file AS {quoted(_PATH)}"])
    rows = con.sql(f"SELECT {select} FROM ({reader.rows()}) WHERE {settled.condition}")
    batches = cast(Iterable[pa.RecordBatch], rows.to_arrow_reader(ROW_GROUP_ROWS))
    named = ((scratch.files[path].name, part) for path, part in by_path(batches))
    return write_parts(store, target.metadata, named, _told(progress))


def _told(progress: Progress | None) -> Callable[[int], None]:
    return lambda done: _tell(progress, "reading", done)


def _tell(progress: Progress | None, what: str, done: int) -> None:
    if progress is not None:
        progress(what, done, None)
