"""Let executors stage the rows of a change in the target database, from which the driver applies them.

The driver creates the tables, applies what came back, and drops the tables. It never reads a row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.staged_change import StagedChange, StagingPlan
from runnel.connect.sinks.sql.staging import (
    BucketStager,
    StagedUnit,
    StagingTables,
    StagingTarget,
    UnitStager,
    build_attempt_column,
    create_table_names,
    get_table_prefix,
)
from runnel.connect.sinks.sql.writer import SinkColumn, StagingWriter, select_rows_sql
from runnel.connect.sinks.units.bucket_rows import run_by_key
from runnel.connect.sinks.units.change_rows import ChangeRows
from runnel.errors import RunnelError
from runnel.lake.scan.scan_units import build_scan_units, count_bytes, list_outside_paths
from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.lake.work_runner import WorkRunner


@contextmanager
def stage_change(writer: StagingWriter, change: "OutgoingChange", plan: StagingPlan) -> Iterator[StagedChange]:
    """Choose the place, stage the rows if it is the executors, and drop the tables at the end.

    Without the right to create tables nothing is staged, and the place says so.
    """
    assert change.work is not None
    is_overwrite = plan.mode == "overwrite"
    files = change.list_all_files() if is_overwrite else (*change.changed_files.old, *change.changed_files.new)
    runner = change.work.choose_runner(count_bytes(files), list_outside_paths(change.store.warehouse, files))
    if (refusal := _drop_leftovers(writer, plan.sink_name)) is None and runner.place.name == EXECUTORS:
        has_removed_rows = plan.mode == "upsert" and not change.changed_files.has_only_added_rows
        tables = create_table_names(plan.sink_name, change.key, has_removed_rows=has_removed_rows)
        refusal = _create_tables(writer, change, plan, tables)
        if refusal is None:
            with _dropped_at_end(writer, tables):
                yield _stage_units(writer, change, plan, tables, runner)
            return
    yield StagedChange(runner.place if runner.place.name == PROCESS else WorkPlace(PROCESS, str(refusal)))


def _drop_leftovers(writer: StagingWriter, sink_name: str) -> str | None:
    """Drop what earlier deliveries left; return why not, if the user may not."""
    try:
        for name in writer.list_tables(get_table_prefix(sink_name)):
            writer.drop_staging_table(name)
    except RunnelError as error:
        if error.code != write_errors.REFUSED:
            raise
        return _describe_refusal(writer, "drop")
    return None


def _create_tables(
    writer: StagingWriter, change: "OutgoingChange", plan: StagingPlan, tables: StagingTables
) -> str | None:
    """Create the tables; return why not, if the user may not."""
    key_columns = [column for column in plan.columns if column.name in plan.key_check.key]
    try:
        _create_table(writer, change, tables.added, plan.columns)
        if tables.removed is not None:
            _create_table(writer, change, tables.removed, key_columns)
    except RunnelError as error:
        if error.code != write_errors.REFUSED:
            raise
        return _describe_refusal(writer, "create")
    return None


def _create_table(writer: StagingWriter, change: "OutgoingChange", name: str, columns: Sequence[SinkColumn]) -> None:
    all_columns = (*columns, build_attempt_column())
    rows = change.read_table(select_rows_sql(all_columns, f"({change.empty_select()})"))
    writer.create_staging_table(name, all_columns, rows.to_reader())


def _describe_refusal(writer: StagingWriter, verb: str) -> str:
    return f"the user may not {verb} tables at {writer.address}, to which executors would write first"


@contextmanager
def _dropped_at_end(writer: StagingWriter, tables: StagingTables) -> Iterator[None]:
    """Drop the tables at the end; if that fails, the next delivery does it."""
    try:
        yield
    except BaseException:
        with suppress(RunnelError):
            _reconnect(writer)
            _drop_tables(writer, tables)
        raise
    with suppress(RunnelError):
        _drop_tables(writer, tables)


def _drop_tables(writer: StagingWriter, tables: StagingTables) -> None:
    for name in filter(None, (tables.added, tables.removed)):
        writer.drop_staging_table(name)


def _reconnect(writer: StagingWriter) -> None:
    writer.close()
    writer.connect()


def _stage_units(
    writer: StagingWriter, change: "OutgoingChange", plan: StagingPlan, tables: StagingTables, runner: "WorkRunner"
) -> StagedChange:
    key = plan.key_check.key if plan.mode == "upsert" else ()
    target = StagingTarget(writer.address, writer.declared_table, writer.at, tables, plan.columns, key)
    staged_units = _run_units(change, plan, target, runner)
    _reconnect(writer)  # a connection that was idle for long may be lost
    attempts = [unit.attempt for unit in staged_units]
    return StagedChange(
        runner.place,
        writer.select_staged(tables.added, attempts),
        writer.select_staged(tables.removed, attempts) if tables.removed is not None else None,
        sum(unit.added for unit in staged_units),
        sum(unit.removed for unit in staged_units),
    )


def _run_units(
    change: "OutgoingChange", plan: StagingPlan, target: StagingTarget, runner: "WorkRunner"
) -> list[StagedUnit]:
    """Stage units of files, if their rows need not meet, or else buckets."""
    assert change.work is not None
    rows, report_units = ChangeRows.of(change), change.work.report_units
    files = change.changed_files
    if plan.mode == "overwrite" or (plan.mode == "append" and files.has_only_added_rows):
        entries = change.list_all_files() if plan.mode == "overwrite" else files.new
        units = build_scan_units(entries, runner.parallel_units)
        return runner.run(UnitStager(rows, target), units, report_units)
    key_check = plan.key_check if plan.mode == "upsert" else None
    stager = BucketStager(rows, target, files.has_only_added_rows, key_check)
    return run_by_key(runner, rows, files, target.key, merge=stager, report_units=report_units)
