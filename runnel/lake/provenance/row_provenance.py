"""Explain where rows come from: the source file and record, or the run and the rows of its inputs. Reads only."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import log_table_of, quarantine_table_of
from runnel.errors import CorruptData, Mistake
from runnel.lake.flow_state.ingest_position import STATE_PATH, SourceRecord, find_source_record
from runnel.lake.flow_state.ingest_positions import read_position
from runnel.lake.history.commits import Commit, find_commit, find_version
from runnel.lake.history.content_origin import ContentOrigin, HistoryStep
from runnel.lake.owners.row_runs import find_owned_row
from runnel.lake.provenance.data_file_origin import find_data_file_origin
from runnel.lake.provenance.input_rows import InputRows, trace_inputs
from runnel.lake.provenance.row_search import FoundRow, search_rows
from runnel.lake.provenance.table_provenance import classify_origin
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.lake.store import Store

MAX_ROWS = 10
LineLocator = Callable[[TableName, SourceRecord], str | None]
"""Returns where a record is in its source file, such as `line 3`; None if that can't be determined any more."""


@dataclass(frozen=True)
class OffsetSpan:
    """The offsets of a partition of a Kafka topic that a commit read, both ends included."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class TracedRow:
    """A row, the commit and the run that brought it, and where they had it from.

    `kind` says what brought it, as in a table's provenance. For a source of files, `file` and, if known, `record` and
    `line` name the place; for Kafka, `offsets` has what the commit read; for a task, `inputs` has the rows that it was
    computed from. `note` says what is not known, and why.
    """

    values: Mapping[str, Any]
    kind: str
    commit: Commit
    run: str | None
    file: str | None = None
    record: int | None = None
    line: str | None = None
    offsets: tuple[OffsetSpan, ...] = ()
    inputs: tuple[InputRows, ...] = ()
    note: str | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        commit = {"commit": self.commit.id, "branch": self.commit.branch, "message": self.commit.message}
        place = {"file": self.file, "record": self.record, "line": self.line}
        return {
            "values": dict(self.values),
            "kind": self.kind,
            **commit,
            "at": self.commit.at,
            "run": self.run,
            **place,
            "offsets": [asdict(span) for span in self.offsets],
            "inputs": [item.json() for item in self.inputs],
            "note": self.note,
        }


@dataclass(frozen=True)
class RowProvenance:
    """Where the rows of a table come from that a condition matches: the first ones, and how many there are."""

    table: TableName
    at: Commit
    condition: str
    rows: tuple[TracedRow, ...]
    rows_total: int

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "at": self.at.id,
            "row": self.condition,
            "rows": [row.json() for row in self.rows],
            "rows_total": self.rows_total,
        }

    def __str__(self) -> str:
        """Return it as text for people, as `runnel why --row` prints it."""
        from runnel.lake.provenance.row_text import describe_rows

        return describe_rows(self)


def explain_rows(
    store: "Store", table: TableName, condition: str, at: str = "main", locate_line: LineLocator | None = None
) -> RowProvenance:
    """Return where the rows of a table at a ref come from that a condition matches."""
    commit = store.commit(at)
    version = store.versions(commit, [table])[table]
    search = search_rows(store, table, version.location, condition, MAX_ROWS)
    if not search.total:
        raise _no_row_error(store, table, condition, commit)
    position = store.db.read(lambda connection: read_position(connection, commit, table))
    tracer = _RowTracer(store, table, commit, tuple(position.values()), locate_line)
    return RowProvenance(table, commit, condition, tuple(tracer.trace(row) for row in search.rows), search.total)


@dataclass(frozen=True)
class _RowTracer:
    """Traces rows of one table at one commit."""

    store: "Store"
    table: TableName
    at: Commit
    processed_files: "tuple[ProcessedFile, ...]"
    locate_line: LineLocator | None

    def trace(self, row: FoundRow) -> TracedRow:
        values = {name: _to_json_value(value) for name, value in row.values.items()}
        owned_row = find_owned_row(self.store, row.data_file, row.position)
        piece = owned_row.piece if owned_row is not None else None
        origin = find_data_file_origin(self.store, self.at, self.table, row.data_file, piece)
        if origin is None:
            raise CorruptData("WHY_ROW", f"no commit of `{self.table}` has {row.data_file}", fix="run `runnel fsck`")
        step, detail = origin.step, origin.step.change.detail
        kind = "compact" if step.commit.kind == "compact" else classify_origin(ContentOrigin(step))
        traced = TracedRow(values, kind, step.commit, detail.get("run") or step.commit.run)
        if not origin.is_exact:
            gone_note = "earlier versions are gone (retention): an earlier commit may have brought it"
            traced = replace(traced, note=gone_note)
        record = find_source_record(
            (file for file in self.processed_files if file.path != STATE_PATH), row.data_file, row.position, owned_row
        )
        if record is not None:
            return self._with_record(traced, record)
        if kind == "task":
            is_copied = detail.get("action") in ("rows", "slices")  # retained rows are written again with changed ones
            note = (
                "this run wrote the data file; an earlier run may have computed the row" if is_copied else traced.note
            )
            return replace(traced, inputs=trace_inputs(self.store, step, [row.values]), note=note)
        return self._with_origin(traced, step)

    def _with_record(self, traced: TracedRow, record: SourceRecord) -> TracedRow:
        line = self.locate_line(self.table, record) if self.locate_line and record.record is not None else None
        note = f"which record of the file it is, is not known: {record.unknown_reason}" if not record.record else None
        return replace(traced, file=record.path, record=record.record, line=line, note=note or traced.note)

    def _with_origin(self, traced: TracedRow, step: HistoryStep) -> TracedRow:
        """Return a row of a feed, a load or another writer with what the commit recorded about it."""
        if traced.kind == "compact":
            note = f"its rows were rewritten; for what brought it, add --at {step.commit.parent}"
            return replace(traced, note=note)
        if traced.kind == "load":
            load = step.change.detail["load"]
            names = [str(file["name"]) for file in load["files"]]
            if len(names) == 1 and not load.get("more_files"):
                return replace(traced, file=names[0], note="its line is not known: `runnel load` does not record it")
            more = ", ..." if names[MAX_ROWS:] else ""
            return replace(traced, note=f"loaded from one of these files: {', '.join(names[:MAX_ROWS])}{more}")
        if offsets := _read_offsets(self.store, step):
            return replace(traced, offsets=offsets)
        log_table = log_table_of(self.table)
        if self.store.db.read(lambda connection: find_version(connection, self.at, log_table)) is not None:
            return replace(traced, note=f"it follows from the change log: `runnel why {log_table} --row ...`")
        if traced.kind == "source":
            return replace(traced, note="the source does not record which file or message each row came from")
        return traced


def _read_offsets(store: "Store", step: HistoryStep) -> tuple[OffsetSpan, ...]:
    """Return the offsets that a commit read from Kafka: those between its state and the state before it."""
    table, commit = step.change.table, step.commit
    parent = store.db.read(lambda connection: find_commit(connection, commit.parent or ""))
    before, after = (_read_state_offsets(store, entry, table) if entry else {} for entry in (parent, commit))
    return tuple(
        OffsetSpan(topic, int(partition), first, end - 1)
        for topic, partitions in sorted(after.items())
        for partition, end in sorted(partitions.items(), key=lambda item: int(item[0]))
        if (first := before.get(topic, {}).get(partition, 0)) < end
    )


def _read_state_offsets(store: "Store", commit: Commit, table: TableName) -> dict[str, dict[str, int]]:
    state = store.db.read(lambda connection: read_position(connection, commit, table)).get(STATE_PATH)
    stored_state = json.loads(state.state) if state is not None and state.state else {}
    return dict(stored_state.get("offsets", {})) if isinstance(stored_state, dict) else {}


def _no_row_error(store: "Store", table: TableName, condition: str, commit: Commit) -> Mistake:
    quarantine = quarantine_table_of(table)
    has_quarantine = store.db.read(lambda connection: find_version(connection, commit, quarantine)) is not None
    fix = f'see `runnel query "select * from {table}"`, or name another version with --at'
    if has_quarantine:
        fix = f"`runnel quarantine {table}` shows rows that were set aside; or {fix}"
    return Mistake("WHY_NO_ROW", f"no row of `{table}` at {commit.id[:8]} matches {condition}", fix=fix)


def _to_json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: times in ISO, decimals as strings, bytes in base64."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _to_json_value(item) for name, item in value.items()}
    return value
