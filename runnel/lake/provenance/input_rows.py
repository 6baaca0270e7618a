"""Walk from rows of a task's table to the rows of its inputs, as far as slices or keys lead. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.flow_state.ingest_position import STATE_PATH, find_source_record
from runnel.lake.flow_state.ingest_positions import find_version_with_content, read_position
from runnel.lake.history.content_origin import HistoryStep, find_publishing_step
from runnel.lake.iceberg.data_file_owners import OwnedRow
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_size import read_size
from runnel.lake.provenance.row_search import RowSearch, build_condition, search_rows
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.history.commits import Commit
    from runnel.lake.store import Store

MAX_ROWS = 10  # rows of an input by whose values its own inputs are searched
MAX_FILES = 10
_MAX_DEPTH = 20


@dataclass(frozen=True)
class InputFile:
    """A source file that some rows of an input came from, and how many of them."""

    name: str
    rows: int


@dataclass(frozen=True)
class InputRows:
    """The rows of an input's version that rows of a task's table come from.

    `condition` selects them; None if any row of the version may have contributed. `files` are the first source files
    that they came from, `inputs` what the input itself was computed from.
    """

    table: TableName
    commit: "Commit | None"
    condition: str | None
    rows: int | None
    files: tuple[InputFile, ...] = ()
    files_total: int = 0
    inputs: "tuple[InputRows, ...]" = ()
    note: str | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "commit": self.commit.id if self.commit else None,
            "row": self.condition,
            "rows_total": self.rows,
            "files": [{"name": file.name, "rows": file.rows} for file in self.files],
            "files_total": self.files_total,
            "inputs": [item.json() for item in self.inputs],
            "note": self.note,
        }


def trace_inputs(
    store: "Store", step: HistoryStep, rows: Sequence[Mapping[str, Any]], depth: int = 0
) -> tuple[InputRows, ...]:
    """Return the rows of a task's inputs that some rows of its table, written by a step, come from."""
    inputs: Mapping[str, Mapping[str, str]] = step.change.detail.get("inputs", {})
    tracer = _InputTracer(store, step, rows, depth)
    return tuple(
        tracer.trace(TableName.parse_unchecked(name), item["location"], item["content"])
        for name, item in inputs.items()
    )


@dataclass(frozen=True)
class _InputTracer:
    """Traces rows of a task's table, which a step wrote, to its inputs."""

    store: "Store"
    step: HistoryStep
    rows: Sequence[Mapping[str, Any]]
    depth: int

    def trace(self, table: TableName, location: str, content: str) -> InputRows:
        """Return the rows of a version of an input; if it was never published, of one with the same content."""
        publishing_step = self._find_publishing_step(table, location)
        if publishing_step is None and (published := find_version_with_content(self.store.db, table, content)):
            location, publishing_step = published, self._find_publishing_step(table, published)
        commit = publishing_step.commit if publishing_step else None
        try:
            metadata = load_metadata(self.store, location)
            columns = {field.name for field in metadata.schema().fields}
            relation, note = _find_relation(self.step, table, columns)
            condition = _build_condition(relation, self.rows)
            search = search_rows(self.store, table, location, condition, MAX_ROWS) if condition else None
        except RunnelError as error:
            return InputRows(table, commit, None, None, note=f"its version can't be read: {error.what}")
        if search is None or (not search.total and note):
            rows = read_size(metadata).rows
            return InputRows(table, commit, None, rows, note="any of its rows may have contributed")
        files, files_total = _count_files(self.store, publishing_step, table, search)
        inputs = self._trace_above(publishing_step, search)
        return InputRows(table, commit, condition, search.total, files, files_total, inputs, note)

    def _find_publishing_step(self, table: TableName, location: str) -> HistoryStep | None:
        return self.store.db.read(
            lambda connection: find_publishing_step(connection, self.step.commit, table, location)
        )

    def _trace_above(self, step: HistoryStep | None, search: RowSearch) -> tuple[InputRows, ...]:
        if step is None or "key" not in step.change.detail or self.depth >= _MAX_DEPTH:
            return ()
        rows = [row.values for row in search.rows] if search.total <= MAX_ROWS else []
        return trace_inputs(self.store, step, rows, self.depth + 1)


def _find_relation(step: HistoryStep, table: TableName, columns: set[str]) -> tuple[list[str], str | None]:
    """Return the columns by which rows of a task's table belong to rows of an input, and a note about them."""
    relation: Mapping[str, list[str]] = step.change.detail.get("relation") or {}
    key, by = relation.get("key", []), relation.get("by", [])
    if key and columns.issuperset(key):
        return key, f"if it passes {', '.join(key)} through"
    if by and columns.issuperset(by) and str(table) not in relation.get("other_slices", []):
        return by, None
    return [], None


def _build_condition(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str | None:
    if not columns or not rows or any(name not in row for row in rows for name in columns):
        return None
    value_rows = {tuple(row[name] for name in columns) for row in rows}
    # Sorted, because rows come in the order of their data files, whose names are random.
    in_order = sorted(value_rows, key=lambda values: [(value is None, value) for value in values])
    return build_condition(columns, in_order)


def _count_files(
    store: "Store", publishing_step: HistoryStep | None, table: TableName, search: RowSearch
) -> tuple[tuple[InputFile, ...], int]:
    """Return the first source files that matching rows came from, and how many there are."""
    if publishing_step is None:
        return (), 0
    position = store.db.read(lambda connection: read_position(connection, publishing_step.commit, table))
    processed_files = [file for file in position.values() if file.path != STATE_PATH]
    rows_by_file: dict[str, int] = {}
    for (data_file, owner), count in search.rows_by_owner.items():
        owned_row = OwnedRow(owner, "", None) if owner is not None else None
        record = find_source_record(processed_files, data_file, 0, owned_row)
        if record is not None:
            rows_by_file[record.path] = rows_by_file.get(record.path, 0) + count
    files = [InputFile(name, count) for name, count in sorted(rows_by_file.items())]
    return tuple(files[:MAX_FILES]), len(files)
