"""Load files into a table by hand: everything, or nothing, in one commit.

If somebody else changed the table in the meantime, the written files are published onto the new version. If its columns
changed, or another load created the table, the load starts again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.types import StringType
from sqlalchemy.engine import Connection

from runnel.connect.files.csv import check_options
from runnel.connect.files.file_patterns import detect_format, find_files
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.load import register_parquet
from runnel.connect.load.file_loader import PreparedLoad, prepare_load
from runnel.connect.load.suggest.option_suggestion import add_suggestion, suggest_options
from runnel.connect.load.suggest.suggested_options import SuggestedOptions
from runnel.declare.model.column_types import parse_columns
from runnel.errors import Mistake, RunnelError, VersionConflict, plural
from runnel.lake.history.branches import get_branch as known_branch
from runnel.lake.history.commits import Commit, CommitChange, find_version
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.lake.table_writer import publish_edit
from runnel.lake.work_runner import WorkContext, WorkRunner
from runnel.model.progress import Progress
from runnel.model.table_version import TableVersion
from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_ATTEMPTS = 20
MAX_NAMED_FILES = 1000


@dataclass(frozen=True)
class LoadOptions:
    """What a user may choose for a load.

    `schema` declares types as Spark writes them; types that it leaves out are inferred. `replace` removes the existing
    rows in the same commit. `in_place` registers Parquet files without copying them. With
    `missing_columns` "null", files may lack columns of the schema.
    """

    branch: str = "main"
    format: str | None = None
    schema: str | None = None
    partition: Sequence[str] = ()
    key: Sequence[str] = ()
    on_new_column: str = "add"
    on_bad: str = "stop"
    replace: bool = False
    in_place: bool = False
    missing_columns: str = "stop"
    message: str | None = None
    csv: CsvOptions | None = None
    document: DocumentOptions | None = None


@dataclass(frozen=True)
class LoadResult:
    """The result of a load. `commit` is None if there was nothing to do: no rows and no new column.

    `suggested` are options with which the first file of a new table would be read better, though it was loaded.
    """

    commit: Commit | None
    table: "TableName"
    files: int
    rows: int
    bytes: int
    created: bool
    new_columns: tuple[str, ...] = ()
    dropped: int = 0
    suggested: SuggestedOptions = field(default_factory=SuggestedOptions)
    place: WorkPlace | None = None  # where the files were read; None if there was no choice


class PrepareInUnits(Protocol):
    """Loads files in work units, as `prepare_load` does in this process."""

    def __call__(
        self, store: "Store", request: LoadRequest, base: str | None, work: WorkContext, runner: WorkRunner
    ) -> PreparedLoad:
        """Write the files of a request as data files for the version `base` of its table, or for a new table."""


@dataclass(frozen=True)
class UnitLoading:
    """Where files may be read other than in this process, and what reads them there."""

    work: WorkContext
    prepare: PrepareInUnits


@dataclass(frozen=True)
class _Reading:
    """Reads the files of a request in the place for their size."""

    unit_loading: UnitLoading | None
    report_progress: Progress | None

    def read_files(self, store: "Store", request: LoadRequest, base: str | None) -> PreparedLoad:
        if self.unit_loading is None:
            return prepare_load(store, request, base, self.report_progress)
        if request.in_place:
            prepared = prepare_load(store, request, base, self.report_progress)
            return replace(prepared, place=WorkPlace(PROCESS, "files are registered where they are"))
        work = self.unit_loading.work
        paths = [os.path.abspath(file.path) for file in request.files]  # noqa: PTH100 - links stay
        runner = work.choose_runner(request.bytes, paths)
        if runner.place.name == EXECUTORS:
            return self.unit_loading.prepare(store, request, base, work, runner)
        return replace(prepare_load(store, request, base, self.report_progress), place=runner.place)


class _TableChanged(Exception):
    """The table changed so that the written files no longer fit; the load has to start again."""


def load_files(
    store: "Store",
    table: "TableName",
    patterns: Sequence[str],
    options: LoadOptions | None = None,
    *,
    progress: Progress | None = None,
    unit_loading: UnitLoading | None = None,
) -> LoadResult:
    """Load the files that paths and globs match into a table of a branch; create the table if it does not exist.

    Raises Mistake with a report of bad rows. Without `unit_loading`, files are read in this process.
    """
    options = options or LoadOptions()
    branch = options.branch
    store.db.read(lambda connection: known_branch(connection, branch))
    request = _build_request(table, patterns, options)
    if options.in_place:
        request = register_parquet.prepare_request(store, request)
    reading = _Reading(unit_loading, progress)
    with acquire_pin(store.db, "write") as pin:

        def load_once() -> LoadResult:
            try:
                return _load_once(store, request, options.message, pin, reading)
            except _TableChanged as error:
                raise VersionConflict(branch, [str(table)]) from error

        return retry_on_conflict(load_once, _ATTEMPTS)


def _build_request(table: "TableName", patterns: Sequence[str], options: LoadOptions) -> LoadRequest:
    files = find_files(patterns)
    request = LoadRequest(
        table=table,
        files=files,
        format=detect_format(files, options.format),
        branch=options.branch,
        schema=parse_columns(options.schema) if options.schema is not None else (),
        partition=tuple(options.partition),
        key=tuple(options.key),
        on_new_column=options.on_new_column,
        on_bad=options.on_bad,
        replace=options.replace,
        in_place=options.in_place,
        allows_missing_columns=options.missing_columns == "null",
        csv=options.csv or CsvOptions(),
        document=options.document or DocumentOptions(),
    )
    check_options(request.csv)
    return request


def _load_once(store: "Store", request: LoadRequest, message: str | None, pin: str, reading: "_Reading") -> LoadResult:
    base = _find_version(store, request)
    if base is not None:
        _refuse_unloadable_table(store, request, base)
    prepared = _prepare_load(store, request, base.location if base else None, reading)
    commit_message = message or _compose_message(request, prepared)
    if base is None:
        commit: Commit | None = _publish_new(store, request, prepared, commit_message, pin)
    else:
        commit = _publish_onto(store, request, prepared, commit_message, pin)
    return LoadResult(
        commit=commit,
        table=request.table,
        files=len(request.files),
        rows=prepared.rows,
        bytes=request.bytes,
        created=base is None,
        new_columns=prepared.new_columns,
        dropped=prepared.dropped,
        suggested=_suggest_options(store, request, prepared)
        if base is None and not request.schema
        else SuggestedOptions(),
        place=prepared.place,
    )


def _suggest_options(store: "Store", request: LoadRequest, prepared: PreparedLoad) -> SuggestedOptions:
    fields = table_metadata.load_metadata(store, prepared.location).schema().fields
    text_columns = [field.name for field in fields if isinstance(field.field_type, StringType)]
    return suggest_options(request, request.files[0], text_columns)


def _prepare_load(store: "Store", request: LoadRequest, base: str | None, reading: "_Reading") -> PreparedLoad:
    try:
        return reading.read_files(store, request, base)
    except RunnelError as error:
        improved = add_suggestion(error, request, is_source=False)
        if improved is error:
            raise
        raise improved from error


def _find_version(store: "Store", request: LoadRequest) -> TableVersion | None:
    commit = store.commit(request.branch)

    def read_version(connection: Connection) -> TableVersion | None:
        return find_version(connection, commit, request.table)

    return store.db.read(read_version)


def _refuse_unloadable_table(store: "Store", request: LoadRequest, base: TableVersion) -> None:
    """Refuse a table that a task or a source fills, or that holds files."""
    properties = table_metadata.load_metadata(store, base.location).properties
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


def _publish_new(store: "Store", request: LoadRequest, prepared: PreparedLoad, message: str, pin: str) -> Commit:
    location = prepared.location
    if prepared.files or prepared.updates:
        location = stage_version(store, location, VersionEdit(added=prepared.files, updates=prepared.updates))
    change = CommitChange(request.table, None, location, detail=_build_detail(request, prepared))
    return publish(store.db, CommitDraft(request.branch, message, store.author, (change,), pin=pin))


def _publish_onto(
    store: "Store", request: LoadRequest, prepared: PreparedLoad, message: str, pin: str
) -> Commit | None:
    base = table_metadata.load_metadata(store, prepared.location)
    removes_rows = request.replace and any(True for _ in read_entries(store, base))
    if not prepared.files and not prepared.updates and not removes_rows:
        return None

    def build_edit(version: TableVersion) -> VersionEdit:
        current = table_metadata.load_metadata(store, version.location)
        is_recreated = current.table_uuid != base.table_uuid
        is_changed = current.schema() != base.schema() or current.properties != base.properties
        if is_recreated or (prepared.updates and is_changed):
            raise _TableChanged
        live_entries = list(read_entries(store, current)) if request.replace or request.in_place else []
        if request.in_place and not request.replace:
            register_parquet.check_not_registered(
                request.files, [entry.path for entry in live_entries], str(request.table)
            )
        return VersionEdit(prepared.files, live_entries if request.replace else (), updates=prepared.updates)

    detail = _build_detail(request, prepared)
    return publish_edit(store, request.branch, request.table, build_edit, message, pin=pin, detail=detail)


def _compose_message(request: LoadRequest, prepared: PreparedLoad) -> str:
    count = len(request.files)
    mode_text = ", replacing all rows" if request.replace else ", in place" if request.in_place else ""
    files = plural(count, "file")
    bad_text = f", {prepared.dropped:,} bad dropped" if prepared.dropped else ""
    return f"load {request.table}: {files}, {plural(prepared.rows, 'row')}{bad_text}{mode_text}"


def _build_detail(request: LoadRequest, prepared: PreparedLoad) -> dict[str, Any]:
    named_files = [{"name": file.name, "bytes": file.bytes} for file in request.files[:MAX_NAMED_FILES]]
    load_detail: dict[str, Any] = {"files": named_files, "rows": prepared.rows}
    if len(request.files) > len(named_files):
        load_detail["more_files"] = len(request.files) - len(named_files)
    if prepared.dropped:
        load_detail["dropped"] = prepared.dropped
    if request.in_place:
        load_detail["in_place"] = True
    return {"load": load_detail}
