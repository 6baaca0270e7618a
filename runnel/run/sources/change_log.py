"""Apply a log of changes to the table that follows from it, once the log has what is new."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Source, log_of
from runnel.declare.sql.row_condition import query_of
from runnel.errors import Mistake
from runnel.phase_timer import phase
from runnel.plan.decisions.change_log import content_of
from runnel.plan.facts import Head
from runnel.plan.reasons import UNCHANGED
from runnel.run.results.run_result import Done, Event

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.plan.steps import Step
    from runnel.query.allow_list import Parsed
    from runnel.run.run_context import Work

_WORDS = """
    curdate current_date current_timestamp current_timezone localtimestamp now rand randn random shuffle
    to_unix_timestamp unix_timestamp uuid
"""
_VARYING = frozenset(_WORDS.split())
_LOG, _FOUND = "ods.log", "found"


def apply_changes(work: "Work", source: Source, step: "Step") -> Done:
    """Stage the version that follows from the log as it is by now, or take one that is known."""
    from runnel.connect.changes.apply import apply
    from runnel.lake.iceberg.table_metadata import load

    log, head = work.heads[log_of(source.table)], work.heads.get(source.table)
    content = content_of(source, log.content)
    if head is not None and head.content == content:
        return Done(source.table, "skip", "skipped", UNCHANGED)
    if (known := work.facts.known(source.table, content)) is not None:
        return Done(source.table, "reuse", "succeeded", step.reason, head=known)
    work.tell(Event("start", step.reason, source.table, "ingest"))

    deletes = condition_of(source, load(work.store, log.location).schema())
    with phase("read"):
        made = apply(work.store, source, log, head, deletes, work.reading(source.table))
    left = f"{made.left_out:,} rows of the log are null in a column of the key or the sequence: not applied"
    return Done(
        source.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=made.rows,
        head=Head(made.location, content),
        detail={"run": work.order.run, "inputs": {str(log_of(source.table)): asdict(log)}},
        warnings=(left,) if made.left_out else (),
    )


def condition_of(source: Source, schema: "Schema") -> str | None:
    """Return the condition of a delete in DuckDB's SQL, over a row that is called as `Rule` has it.

    Raises where that would not mean what it means in Spark SQL, or not the same tomorrow.
    """
    from runnel.connect.changes.change_sql import ROW
    from runnel.query.allow_list import parse
    from runnel.query.dialect.translate import Unfaithful, translate
    from runnel.query.table_schemas import column_types
    from runnel.query.unknown_columns import unknown_column

    changes = source.origin
    assert isinstance(changes, Changes)
    if changes.delete_when is None:
        return None
    types = {_LOG: column_types(schema)}
    try:
        parsed = parse(query_of(changes.delete_when, _LOG, _FOUND))
    except Mistake as mistake:
        raise _wrong(source, mistake.what) from mistake
    if varying := _varying(parsed):
        raise _wrong(source, f"{varying}() is another at each run")
    found = translate(parsed, types, {_LOG: _FOUND})
    if isinstance(found, Unfaithful):
        strange = unknown_column(found.reason, parsed.tree, types)
        raise _wrong(source, strange.what if strange else f"it can't be told without Spark: {found.reason}")
    before, after = "SELECT ", f' AS "{_FOUND}" FROM {_FOUND} AS {ROW}'
    if found.columns[0].type.kind != "boolean":
        raise _wrong(source, f"it is {found.columns[0].type.kind}, not true or false")
    if not (found.sql.startswith(before) and found.sql.endswith(after)):
        raise _wrong(source, "it is more than a condition over one row")
    return found.sql.removeprefix(before).removesuffix(after)


def _varying(parsed: "Parsed") -> str | None:
    from sqlglot import exp

    for node in parsed.tree.walk():
        name = str(node.this) if isinstance(node, exp.Anonymous) else node.name if isinstance(node, exp.Column) else ""
        if name.lower() in _VARYING and not (isinstance(node, exp.Column) and len(node.parts) > 1):
            return name
    return None


def _wrong(source: Source, why: str) -> Mistake:
    what = f"`delete_when` of `{source.table}` can't be used: {why}"
    fix = "write a plain condition over the columns of a row: op = 'D'"
    return Mistake("CHANGES_CONDITION", what, at=str(source.place), fix=fix)
