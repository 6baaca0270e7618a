"""Find the rows of a version that a condition matches, with the data file and the position of each. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, did_you_mean
from runnel.lake.iceberg.data_file_owners import is_shared
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.schema_diff import quote_column_name
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import count_by_owner
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.upkeep.erase.condition import parse_condition, render_condition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store
    from runnel.names import TableName

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class FoundRow:
    """A row that matches, by column, and where it is stored: the data file and the position in it, from 0."""

    values: Mapping[str, Any]
    data_file: str
    position: int


@dataclass(frozen=True)
class RowSearch:
    """The first matching rows, the number of all, and their number for each data file and owner in it.

    The owner is None if the name of the data file tells whose rows it has.
    """

    rows: tuple[FoundRow, ...]
    total: int
    rows_by_owner: Mapping[tuple[str, str | None], int]


def search_rows(store: "Store", table: "TableName", location: str, condition: str, limit: int) -> RowSearch:
    """Return the rows of a version that a condition matches, in the order in which they are stored."""
    import duckdb

    metadata = load_metadata(store, location)
    where = _render_condition(condition, table, metadata.schema())
    try:
        entries = list(read_entries(store, metadata))
        rows = rows_sql(store, metadata, entries, with_positions=True)
    except DuckdbScanError as error:
        what = f"the rows of `{table}` can't be searched: {error.what}"
        fix = f"`runnel log {table}` lists its commits, and `runnel show COMMIT` the files of each"
        raise Mistake("WHY_UNSEARCHABLE", what, fix=fix) from error
    paths = {normalize_location(entry.path): entry.path for entry in entries}
    try:
        with translate_duckdb_errors(), connect_duckdb() as connection:
            matching = f"FROM ({rows}) WHERE {where}"
            place = f'"{FILE_COLUMN}", "{POSITION_COLUMN}"'
            counts = connection.execute(f'SELECT "{FILE_COLUMN}", count(*) {matching} GROUP BY 1 ORDER BY 1').fetchall()
            rows_by_owner: dict[tuple[str, str | None], int] = {
                (paths[data_file], None): count for data_file, count in counts if not is_shared(data_file)
            }
            if len(rows_by_owner) < len(counts):
                shared_rows = connection.sql(f"SELECT {place} {matching} AND \"{FILE_COLUMN}\" LIKE '%/shared-%'")
                rows_by_owner |= _count_by_owner(store, shared_rows.to_arrow_reader(_BATCH_ROWS), paths)
            first_rows = connection.sql(f"SELECT * {matching} ORDER BY {place} LIMIT {limit}").to_arrow_table()
    except (duckdb.ConversionException, duckdb.BinderException, duckdb.OutOfRangeException) as error:
        what = f"{condition}: the condition can't be compared with the table's columns"
        raise Mistake("WHY_CONDITION", what, fix="compare each column with values of its own type") from error
    found_rows = []
    for row in first_rows.to_pylist():
        data_file, position = row.pop(FILE_COLUMN), row.pop(POSITION_COLUMN)
        found_rows.append(FoundRow(row, paths[data_file], position))
    return RowSearch(tuple(found_rows), sum(rows_by_owner.values()), rows_by_owner)


def _count_by_owner(
    store: "Store", batches: "pa.RecordBatchReader", paths: Mapping[str, str]
) -> dict[tuple[str, str | None], int]:
    """Return how many rows of shared data files each owner has, given the file and the position of each row."""
    import pyarrow.compute as pc

    counts: dict[tuple[str, str | None], int] = {}
    for batch in batches:
        segments = pc.call_function("run_end_encode", [batch.column(0)])
        positions, start = batch.column(1).to_numpy(zero_copy_only=False), 0
        for end, data_file in zip(segments.run_ends.to_pylist(), segments.values.to_pylist(), strict=True):
            for owner, count in count_by_owner(store, paths[data_file], positions[start:end]).items():
                counts[paths[data_file], owner] = counts.get((paths[data_file], owner), 0) + count
            start = end
    return counts


def build_condition(columns: Sequence[str], value_rows: Sequence[Sequence[Any]]) -> str | None:
    """Return the condition that some columns have one of these rows of values; None if it can't be written.

    >>> build_condition(["day", "id"], [(date(2026, 1, 2), 7)])
    "day = date '2026-01-02' and id = 7"
    >>> build_condition(["id"], [(2,), (3,)])
    'id in (2, 3)'
    """
    if len(columns) == 1 and len(value_rows) > 1 and all(row[0] is not None for row in value_rows):
        literals = [_format_literal(row[0]) for row in value_rows]
        texts = [literal for literal in literals if literal is not None]
        return f"{quote_column_name(columns[0])} in ({', '.join(texts)})" if len(texts) == len(literals) else None
    alternatives = []
    for values in value_rows:
        value_literals = [_format_literal(value) for value in values]
        if None in value_literals:
            return None
        tests = [
            f"{quote_column_name(name)} {'is null' if literal == 'null' else f'= {literal}'}"
            for name, literal in zip(columns, value_literals, strict=True)
        ]
        alternatives.append(" and ".join(tests))
    return " or ".join(alternatives) if len(alternatives) == 1 else " or ".join(f"({text})" for text in alternatives)


def _render_condition(condition: str, table: "TableName", schema: "Schema") -> str:
    fields = {field.name.lower(): field for field in schema.fields}
    try:
        parsed_condition = parse_condition(condition)
        for name in parsed_condition.columns:
            if name not in fields:
                names = [field.name for field in schema.fields]
                what = f"`{table}` has no column `{name}`" + did_you_mean(name, names)
                raise Mistake("WHY_COLUMN_UNKNOWN", what, fix=f"`runnel table {table}` lists its columns")
        return render_condition(parsed_condition, fields)
    except Mistake as error:
        if error.code != "ERASE_CONDITION":
            raise
        raise Mistake("WHY_CONDITION", error.what, fix=error.fix) from error


def _format_literal(value: Any) -> str | None:
    """Return a value as a literal of a condition; None if it has no exact one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'" if value.tzinfo else None
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return None
