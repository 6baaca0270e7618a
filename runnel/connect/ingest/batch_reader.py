"""Read a batch of files with DuckDB, as a load does, into data files of a version of the source's table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa

from runnel.connect.files.file_patterns import File
from runnel.connect.files.load_request import Request
from runnel.connect.files.open_files import AnyReader, Unread, damaged, look_into, open_reader, unreadable, without
from runnel.connect.files.scratch_files import Scratch
from runnel.connect.ingest.bad_rows import set_aside
from runnel.connect.ingest.column_check import check_columns
from runnel.connect.ingest.ingest import Progress
from runnel.connect.ingest.part_writer import Made, by_path, write_parts
from runnel.connect.ingest.read_request import request_of
from runnel.connect.ingest.required_columns import as_declared, never_null
from runnel.connect.ingest.target_version import Target, created, evolved
from runnel.connect.load.column_matching import Choice, choose
from runnel.connect.load.quarantine import Aside
from runnel.connect.load.type_inference import Settled, files_with_bad_rows, refuse, settle
from runnel.declare.model.flow import Source
from runnel.internal_names import internal_column
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.duckdb_types import duckdb_type, quoted

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store

_PATH = internal_column("path")


@dataclass(frozen=True)
class Batch:
    """Data files that wait to be staged onto `target`, by the path that their rows came from.

    `unread` are files that were skipped, with why; `dropped` counts the rows that were. `incomplete` are the paths of
    files that are not in the table whole: skipped, or with bad rows.
    """

    target: Target
    made: Made = field(default_factory=dict)
    dropped: int = 0
    asides: tuple[Aside, ...] = ()
    new_columns: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    incomplete: frozenset[str] = frozenset()


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
    skips: bool = False,
    together: bool = False,
    owners: Mapping[str, str] | None = None,
) -> Batch:
    """Read files, none of them empty, for the version `base` or, `is_anew`, for a table that starts over.

    The rows of each file get data files of their own, unless they need not be told apart later: then `together`. Their
    names start with its owner, if `owners` has one.

    A file that can't be read at all raises; with `skips` it is left out, by the source's `on_bad`.
    """
    request = request_of(source, files)
    schema = table_metadata.load(store, base).schema() if base is not None and not is_anew else None
    with Scratch() as scratch, connect() as con:
        ready, unread = look_into(con, request, scratch)
        while True:
            if unread and not skips:
                raise unread[0].error
            ready = without(ready, unread)
            if not ready and unread and base is None and not request.schema:
                raise unread[0].error  # no file says which columns there are
            if not ready:
                return _with(Batch(target_of(store, source, (), base, is_anew=is_anew)), unread, source, run)
            try:
                reader = open_reader(con, request, ready, scratch, [column.name for column in request.schema])
                lacking = check_columns(reader, source, [column.name for column in schema.fields] if schema else [])
                if not lacking:
                    taken = _Taken(store, source, request, base, schema, run, is_anew, together, owners or {})
                    return _with(taken.read(con, reader, scratch, progress), unread, source, run)
            except (duckdb.Error, pa.ArrowException) as error:
                lacking = damaged(con, request, ready, scratch) if skips else ()
                if not lacking:
                    raise unreadable(error, request) from error
            unread = (*unread, *lacking)


@dataclass(frozen=True)
class _Taken:
    """What files that can be read are read for."""

    store: "Store"
    source: Source
    request: Request
    base: str | None
    schema: "Schema | None"
    run: str
    is_anew: bool
    together: bool
    owners: Mapping[str, str]

    def read(
        self, con: duckdb.DuckDBPyConnection, reader: AnyReader, scratch: Scratch, progress: Progress | None
    ) -> Batch:
        source, where = self.source, self.request.where
        choices = choose(reader.columns, self.request.schema, self.schema, source.on_new_column, where)
        _tell(progress, "checking", 0)
        settled = settle(con, reader, never_null(choices, source))
        if settled.dropped and source.on_bad == "stop":
            raise refuse(con, reader, settled, scratch.files, where)
        aside = source.on_bad == "quarantine" and settled.dropped
        asides = set_aside(con, reader, settled, scratch.files, self.run) if aside else []
        incomplete = files_with_bad_rows(con, reader, settled, scratch.files) if settled.dropped else frozenset()
        wanted = as_declared(settled.choices, choices)
        target = target_of(self.store, source, wanted, self.base, is_anew=self.is_anew)
        made = _written(
            self.store, con, reader, settled, target, scratch, progress, self.owners, together=self.together
        )
        new = tuple(choice.name for choice in settled.choices if choice.stored is None) if self.schema else ()
        return Batch(target, made, settled.dropped, tuple(asides), new, incomplete=incomplete)


def _with(batch: Batch, unread: Sequence[Unread], source: Source, run: str) -> Batch:
    """Return a batch with the files that were skipped: a row of quarantine each, where that is the policy."""
    at = datetime.now(UTC)
    rows = [Aside(None, each.error.what, each.file.name, run, at) for each in unread]
    asides = (*batch.asides, *rows) if source.on_bad == "quarantine" else batch.asides
    incomplete = batch.incomplete | {each.file.name for each in unread}
    return replace(batch, asides=asides, unread=tuple(each.error.what for each in unread), incomplete=incomplete)


def _written(
    store: "Store",
    con: duckdb.DuckDBPyConnection,
    reader: AnyReader,
    settled: Settled,
    target: Target,
    scratch: Scratch,
    progress: Progress | None,
    owners: Mapping[str, str],
    *,
    together: bool,
) -> Made:
    stored = {choice.name: choice.tries[0].value for choice in settled.choices}
    columns = [
        f"{stored.get(field.name, f'CAST(NULL AS {duckdb_type(field.field_type)})')} AS {quoted(field.name)}"
        for field in target.metadata.schema().fields
    ]
    select = ", ".join([*columns, f"file AS {quoted(_PATH)}"])
    rows = con.sql(f"SELECT {select} FROM ({reader.rows()}) WHERE {settled.condition}")
    batches = cast(Iterable[pa.RecordBatch], rows.to_arrow_reader(ROW_GROUP_ROWS))
    named = (("" if together else scratch.files[path].name, part) for path, part in by_path(batches))
    return write_parts(store, target.metadata, named, _told(progress), owners)


def _told(progress: Progress | None) -> Callable[[int], None]:
    return lambda done: _tell(progress, "reading", done)


def _tell(progress: Progress | None, what: str, done: int) -> None:
    if progress is not None:
        progress(what, done, None)
