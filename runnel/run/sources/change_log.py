"""Apply a change log (CDC) to the table that follows from it, after new changes were added to the log."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Source, log_table_of
from runnel.declare.sql.row_condition import wrap_in_query
from runnel.errors import Mistake
from runnel.model.table_version import TableVersion
from runnel.phase_timer import measure_phase
from runnel.plan.decisions.change_log import compute_content_id
from runnel.plan.reasons import UNCHANGED
from runnel.run.results.run_result import Event, StepResult

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.plan.steps import PlanStep
    from runnel.query.allow_list import ParsedQuery
    from runnel.run.run_context import RunContext

_WORDS = """
    curdate current_date current_timestamp current_timezone localtimestamp now rand randn random shuffle
    to_unix_timestamp unix_timestamp uuid
"""
_VARYING_FUNCTIONS = frozenset(_WORDS.split())
_LOG, _ALIAS = "ods.log", "found"


def apply_changes(run_context: "RunContext", source: Source, step: "PlanStep") -> StepResult:
    """Stage the version that follows from the current log, or reuse an existing version with the same content."""
    from runnel.connect.changes.apply import stage_changes
    from runnel.lake.iceberg.table_metadata import load_metadata

    log, head = run_context.heads[log_table_of(source.table)], run_context.heads.get(source.table)
    content = compute_content_id(source, log.content)
    if head is not None and head.content == content:
        return StepResult(source.table, "skip", "skipped", UNCHANGED)
    if (existing_head := run_context.facts.find_version(source.table, content)) is not None:
        return StepResult(source.table, "reuse", "succeeded", step.reason, head=existing_head)
    run_context.report_event(Event("start", step.reason, source.table, "ingest"))

    deletes = translate_delete_condition(source, load_metadata(run_context.store, log.location).schema())
    with measure_phase("read"):
        applied = stage_changes(
            run_context.store,
            source,
            log,
            head,
            deletes,
            report_progress=run_context.make_read_reporter(source.table),
            choose_runner=run_context.choose_runner_of(source.table),
        )
    left_out_warning = (
        f"{applied.left_out:,} rows of the log have a null in a key or sequence column and were not applied"
    )
    return StepResult(
        source.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=applied.rows,
        head=TableVersion(applied.location, content),
        detail={"run": run_context.spec.run, "inputs": {str(log_table_of(source.table)): asdict(log)}},
        warnings=(left_out_warning,) if applied.left_out else (),
        place=applied.place if run_context.has_work_places else None,
    )


def translate_delete_condition(source: Source, schema: "Schema") -> str | None:
    """Return `delete_when` as a condition in DuckDB's SQL, over a row with the alias that `Rule` uses.

    Raises if the condition means something else in DuckDB than in Spark SQL, or depends on the time of the run.
    """
    from runnel.connect.changes.change_sql import ROW_ALIAS
    from runnel.query.allow_list import parse_allowed_query
    from runnel.query.dialect.translate import UntranslatableQuery, translate
    from runnel.query.table_schemas import to_spark_types
    from runnel.query.unknown_columns import find_unknown_column

    changes = source.origin
    assert isinstance(changes, Changes)
    if changes.delete_when is None:
        return None
    types = {_LOG: to_spark_types(schema)}
    try:
        parsed = parse_allowed_query(wrap_in_query(changes.delete_when, _LOG, _ALIAS))
    except Mistake as mistake:
        raise _condition_error(source, mistake.what) from mistake
    if varying := _find_varying_function(parsed):
        raise _condition_error(source, f"{varying}() returns another value in each run")
    translation = translate(parsed, types, {_LOG: _ALIAS})
    if isinstance(translation, UntranslatableQuery):
        column_error = find_unknown_column(translation.reason, parsed.tree, types)
        raise _condition_error(
            source, column_error.what if column_error else f"it can't be evaluated without Spark: {translation.reason}"
        )
    before, after = "SELECT ", f' AS "{_ALIAS}" FROM {_ALIAS} AS {ROW_ALIAS}'
    if translation.columns[0].type.kind != "boolean":
        raise _condition_error(source, f"it is {translation.columns[0].type.kind}, not true or false")
    if not (translation.sql.startswith(before) and translation.sql.endswith(after)):
        raise _condition_error(source, "it is more than a condition over one row")
    return translation.sql.removeprefix(before).removesuffix(after)


def _find_varying_function(parsed: "ParsedQuery") -> str | None:
    from sqlglot import exp

    for node in parsed.tree.walk():
        name = str(node.this) if isinstance(node, exp.Anonymous) else node.name if isinstance(node, exp.Column) else ""
        if name.lower() in _VARYING_FUNCTIONS and not (isinstance(node, exp.Column) and len(node.parts) > 1):
            return name
    return None


def _condition_error(source: Source, why: str) -> Mistake:
    what = f"`delete_when` of `{source.table}` can't be used: {why}"
    fix = "write a plain condition over the columns of a row: op = 'D'"
    return Mistake("CHANGES_CONDITION", what, at=str(source.place), fix=fix)
