"""Rows of a table that never became rows of it: events in its inbox, and records in its quarantine, as they came.

A record that is a JSON object is tested by a condition over the table's columns, each read from the member of its name.
Whether any other record matches can't be told. Reads only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import NestedField, StringType
from sqlglot import exp

from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.scan_sql import duckdb_type, literal, quoted, rows_sql
from runnel.lake.upkeep.erase.condition import Condition, told
from runnel.lake.upkeep.erase.version_rewriter import Library

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import Entry
    from runnel.lake.store import Store

RAW = "raw"
_AT_ONCE = 20_000


@dataclass(frozen=True)
class Tested:
    """Which of some records match, by their numbers, and of how many that can't be told."""

    matching: tuple[int, ...]
    untold: int


def match_records(condition: Condition, metadata: "TableMetadata", records: Sequence[str]) -> Tested:
    """Test records by a condition over the columns of a table."""
    if not records:
        return Tested((), 0)
    fields = {name: _field(metadata, name, at) for at, name in enumerate(condition.columns)}
    texts = {name: f"json_extract_string(raw, {literal(_pointer(field.name))})" for name, field in fields.items()}
    values = {name: f"TRY_CAST({texts[name]} AS {duckdb_type(field.field_type)})" for name, field in fields.items()}
    read = ", ".join(f"{values[name]} AS {quoted(field.name)}" for name, field in fields.items())
    clear = " AND ".join(f"({texts[name]} IS NULL OR {values[name]} IS NOT NULL)" for name in fields)
    is_object = "CASE WHEN json_valid(raw) THEN json_type(raw) = 'OBJECT' ELSE false END"
    sql = (
        f"SELECT number, coalesce({told(condition, fields)}, false) AS matches, is_clear"
        f" FROM (SELECT number, {read}, {clear} AS is_clear FROM objects)"
    )
    with connect() as connection:
        connection.register("given", pa.table({"number": range(len(records)), "raw": pa.array(records, pa.string())}))
        connection.execute(f"CREATE TEMP TABLE objects AS SELECT number, raw FROM given WHERE {is_object}")
        found = connection.execute(sql).fetchall()
        connection.execute("DROP TABLE objects")
        connection.unregister("given")
    matching = tuple(sorted(number for number, matches, _ in found if matches))
    sure = sum(1 for _, matches, is_clear in found if matches or is_clear)
    return Tested(matching, len(records) - sure)


def matching_records(
    store: "Store", locations: Iterable[str], condition: Condition, metadata: "TableMetadata"
) -> tuple[Condition | None, int]:
    """Return what erases the matching records of a quarantine table's versions, and of how many it can't be told.

    The columns of the condition are those of the table that `metadata` is of. None where no record matches.
    """
    matching: set[str] = set()
    untold = 0
    for records in _records(store, locations):
        tested = match_records(condition, metadata, records)
        matching |= {records[number] for number in tested.matching}
        untold += tested.untold
    if not matching:
        return None, untold
    literals = [exp.Literal.string(text) for text in sorted(matching)]
    return Condition(exp.In(this=exp.column(RAW), expressions=literals), (RAW,), condition.sha256), untold


def _records(store: "Store", locations: Iterable[str]) -> Iterator[list[str]]:
    """Yield the records in all files of some versions, some at once, each file read once."""
    library = Library(store)
    files: dict[str, Entry] = {}
    metadata = None
    for location in locations:
        held = library.held(location)
        metadata = held.metadata
        files |= {entry.path: entry for at in (*held.current, *held.older) for entry in at.live if entry.is_data}
    if metadata is None or not files:
        return
    there = [entry for entry in files.values() if store.io.new_input(entry.path).exists()]
    with connect() as connection:
        sql = f"SELECT {RAW} FROM ({rows_sql(store, metadata, there)}) WHERE {RAW} IS NOT NULL"
        found = connection.execute(sql)
        while rows := found.fetchmany(_AT_ONCE):
            yield [record for (record,) in rows]


def _field(metadata: "TableMetadata", name: str, at: int) -> NestedField:
    found = next((field for field in metadata.schema().fields if field.name.lower() == name), None)
    return found or NestedField(at + 1, name, StringType(), required=False)


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
