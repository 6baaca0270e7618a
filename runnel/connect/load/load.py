"""Load files into a table by hand: everything, or nothing, in one commit.

What was written for a version that somebody else changed meanwhile is published on the new one; where columns changed
there, or the table was created by another load, the load starts again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

from runnel.connect.files.csv import check_options
from runnel.connect.files.file_patterns import find, format_of
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import Request
from runnel.connect.load import register_parquet
from runnel.connect.load.file_loader import Brought, Progress, bring
from runnel.declare.model.column_types import columns
from runnel.errors import Mistake, Moved
from runnel.lake.history.branches import branch as known_branch
from runnel.lake.history.commits import Change, Commit, Version, version_at
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish
from runnel.lake.table_writer import write

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

ATTEMPTS = 20
MOST_NAMED = 1000


@dataclass(frozen=True)
class Loaded:
    """What a load did. `commit` is None where there was nothing to do: no rows, and no new column."""

    commit: Commit | None
    table: "TableName"
    files: int
    rows: int
    bytes: int
    created: bool
    new_columns: tuple[str, ...] = ()
    dropped: int = 0


class _Again(Exception):
    """The table is no longer what the files were written for."""


def load(
    store: "Store",
    table: "TableName",
    patterns: Sequence[str],
    *,
    branch: str = "main",
    format: str | None = None,
    schema: str | None = None,
    partition: Sequence[str] = (),
    key: Sequence[str] = (),
    on_new_column: str = "add",
    on_bad: str = "stop",
    replace: bool = False,
    in_place: bool = False,
    message: str | None = None,
    csv: CsvOptions | None = None,
    document: DocumentOptions | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Load the files that paths and globs name into a table of a branch, creating it where there is none.

    `schema` declares types as Spark writes them; what it leaves out is inferred. `replace` removes the rows that were
    there, in the same commit. `in_place` registers Parquet where it is. Raises Mistake with a report of bad rows.
    """
    store.db.read(lambda connection: known_branch(connection, branch))
    files = find(patterns)
    request = Request(
        table=table,
        files=files,
        format=format_of(files, format),
        branch=branch,
        schema=columns(schema) if schema is not None else (),
        partition=tuple(partition),
        key=tuple(key),
        on_new_column=on_new_column,
        on_bad=on_bad,
        replace=replace,
        in_place=in_place,
        csv=csv or CsvOptions(),
        document=document or DocumentOptions(),
    )
    check_options(request.csv)
    if in_place:
        request = register_parquet.request(store, request)
    with pinned(store.db, "write") as pin:
        for _ in range(ATTEMPTS):
            try:
                return _load(store, request, message, pin, progress)
            except (_Again, Moved):
                continue
        raise Moved(branch, [str(table)])


def _load(store: "Store", request: Request, message: str | None, pin: str, progress: Progress | None) -> Loaded:
    base = _version(store, request)
    if base is not None:
        _fillable(store, request, base)
    brought = bring(store, request, base.location if base else None, progress)
    said = message or _message(request, brought)
    if base is None:
        commit: Commit | None = _publish_new(store, request, brought, said, pin)
    else:
        commit = _publish_onto(store, request, brought, said, pin)
    return Loaded(
        commit=commit,
        table=request.table,
        files=len(request.files),
        rows=brought.rows,
        bytes=request.bytes,
        created=base is None,
        new_columns=brought.new_columns,
        dropped=brought.dropped,
    )


def _version(store: "Store", request: Request) -> Version | None:
    commit = store.commit(request.branch)

    def work(connection: Connection) -> Version | None:
        return version_at(connection, commit, request.table)

    return store.db.read(work)


def _fillable(store: "Store", request: Request, base: Version) -> None:
    """Refuse a table whose rows are not given by hand."""
    properties = table_metadata.load(store, base.location).properties
    if properties.get(table_properties.KIND) == "files":
        what = f"`{request.table}` holds files, not rows"
        raise Mistake("LOAD_FILES_TABLE", what, fix=f"put them: runnel put {request.table} PATH")
    if properties.get(table_properties.MADE_BY) == "task":
        what = f"`{request.table}` is made by a task: its rows come from other tables, and the next run would undo this"
        raise Mistake("LOAD_TASK_TABLE", what, fix="load into a table that the task reads, or choose another name")
    if table_properties.SOURCE in properties:
        why = "the source would neither replace nor remove rows that were loaded by hand"
        what = f"`{request.table}` is filled by a source: {why}"
        fix = "give the rows to the source, or load them into a table of its own, declared with rn.manual()"
        raise Mistake("LOAD_SOURCE_TABLE", what, fix=fix)


def _publish_new(store: "Store", request: Request, brought: Brought, message: str, pin: str) -> Commit:
    location = brought.location
    if brought.files or brought.updates:
        location = stage(store, location, Edit(added=brought.files, updates=brought.updates))
    change = Change(request.table, None, location, detail=_detail(request, brought))
    return publish(store.db, Draft(request.branch, message, store.author, (change,), pin=pin))


def _publish_onto(store: "Store", request: Request, brought: Brought, message: str, pin: str) -> Commit | None:
    base = table_metadata.load(store, brought.location)
    gone = request.replace and any(True for _ in entries(store, base))
    if not brought.files and not brought.updates and not gone:
        return None

    def edit(version: Version) -> Edit:
        now = table_metadata.load(store, version.location)
        moved = now.table_uuid != base.table_uuid
        changed = now.schema() != base.schema() or now.properties != base.properties
        if moved or (brought.updates and changed):
            raise _Again
        live = list(entries(store, now)) if request.replace or request.in_place else []
        if request.in_place and not request.replace:
            register_parquet.not_twice(request.files, [entry.path for entry in live], str(request.table))
        return Edit(brought.files, live if request.replace else (), updates=brought.updates)

    detail = _detail(request, brought)
    return write(store, request.branch, request.table, edit, message, pin=pin, detail=detail)


def _message(request: Request, brought: Brought) -> str:
    count = len(request.files)
    how = ", replacing all rows" if request.replace else ", in place" if request.in_place else ""
    files = f"{count:,} file{'s' if count != 1 else ''}"
    bad = f", {brought.dropped:,} bad dropped" if brought.dropped else ""
    return f"load {request.table}: {files}, {brought.rows:,} row{'s' if brought.rows != 1 else ''}{bad}{how}"


def _detail(request: Request, brought: Brought) -> dict[str, Any]:
    named = [{"name": file.name, "bytes": file.bytes} for file in request.files[:MOST_NAMED]]
    found: dict[str, Any] = {"files": named, "rows": brought.rows}
    if len(request.files) > len(named):
        found["more_files"] = len(request.files) - len(named)
    if brought.dropped:
        found["dropped"] = brought.dropped
    if request.in_place:
        found["in_place"] = True
    return {"load": found}
