"""Inspect the table of a source in its database: its columns, its key and its watermark column."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.connect.jdbc.database import DatabaseColumn, SourceDatabase, is_duration
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, did_you_mean


@dataclass(frozen=True)
class TableInspection:
    """A table or a query as it is now.

    `declaration_hash` covers everything that changes the rows: if it differs, all rows must be read again.
    """

    origin: Jdbc
    source: Source
    name: str
    relation: str
    columns: tuple[DatabaseColumn, ...]
    key: tuple[DatabaseColumn, ...]
    watermark_column: DatabaseColumn | None
    declaration_hash: str

    def count_and_checksum(self, database: SourceDatabase, condition: str | None = None) -> tuple[int, str]:
        """Return how many rows there are, and their checksum."""
        where = f" WHERE {condition}" if condition else ""
        checksum = database.checksum_sql(self.columns)
        count, digest = database.fetch_row(f"SELECT count(*), {checksum} FROM {self.relation}{where}")
        return int(count), str(digest if digest is not None else "")


def inspect_table(database: SourceDatabase, source: Source, origin: Jdbc) -> TableInspection:
    """Inspect the table of a declaration, or raise an error that says what is wrong with the declaration."""
    relation = database.relation_sql(origin)
    columns = database.describe_columns(relation)
    at = str(source.place)
    name = origin.table or "the query"
    _check_names(columns, name, at)
    key_names = origin.key or source.key
    key = tuple(_find_column(columns, column_name, "key", name, at) for column_name in key_names)
    watermark_column = _find_column(columns, origin.watermark, "watermark", name, at) if origin.watermark else None
    if watermark_column is not None and origin.overlap is not None:
        _check_overlap(watermark_column, origin.overlap, database, at)
    return TableInspection(
        origin,
        source,
        name,
        relation,
        columns,
        key,
        watermark_column,
        _hash_declaration(database, source, origin, columns, key),
    )


def _hash_declaration(
    database: SourceDatabase,
    source: Source,
    origin: Jdbc,
    columns: Sequence[DatabaseColumn],
    key: Sequence[DatabaseColumn],
) -> str:
    """Return the hash. Of a table that is only appended to, the columns don't count: new ones change no earlier row."""
    is_mirror = bool(key) or origin.watermark is None
    parts = [
        str(database.address),
        [origin.table, origin.query, origin.watermark, [column.name for column in key]],
        [repr(origin.schema), list(source.partition)],
        [[column.name, column.database_type] for column in columns] if is_mirror else [],
        *(["keep"] if origin.removed == "keep" else []),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _check_names(columns: Sequence[DatabaseColumn], name: str, at: str) -> None:
    if not columns:
        raise Mistake("SOURCE_NO_COLUMNS", f"{name} has no columns", at=at, fix="select at least one")
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            what = f"{name} has the column `{column.name}` twice; case does not count"
            fix = 'give it another name: query="select a.id, b.id as other_id ..."'
            raise Mistake("SOURCE_COLUMN_TWICE", what, at=at, fix=fix)
        seen.add(column.name.lower())


def _find_column(
    columns: Sequence[DatabaseColumn], column_name: str, option: str, name: str, at: str
) -> DatabaseColumn:
    for column in (*(candidate for candidate in columns if candidate.name == column_name), *columns):
        if column.name.lower() == column_name.lower():
            return column
    names = [column.name for column in columns]
    what = f"`{option}` names `{column_name}`, which {name} does not have" + did_you_mean(column_name, names)
    raise Mistake("SOURCE_COLUMN_MISSING", what, at=at, fix=f"its columns: {', '.join(names)}")


def _check_overlap(watermark_column: DatabaseColumn, overlap: str, database: SourceDatabase, at: str) -> None:
    is_number = watermark_column.family == "number"
    if database.address.kind == "sqlite" or watermark_column.family == ("time" if is_duration(overlap) else "number"):
        return
    what = f"`overlap` is {overlap}, but the watermark `{watermark_column.name}` is {watermark_column.database_type}"
    fix = "write overlap=100, a number" if is_number else 'write overlap="10 minutes"'
    if watermark_column.family == "other":
        fix = "leave overlap= out, or choose a watermark that is a number or a time"
    raise Mistake("SOURCE_OVERLAP", what, at=at, fix=fix)
