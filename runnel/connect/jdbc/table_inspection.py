"""What a source's declaration means in its database: which columns there are, which are the key and the watermark."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.connect.jdbc.database import Column, Database, is_duration
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, nearest


@dataclass(frozen=True)
class Look:
    """A table or a query as it is now. `declared` is a hash of all that makes rows read earlier other rows."""

    origin: Jdbc
    source: Source
    name: str
    relation: str
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    mark: Column | None
    declared: str

    def counted(self, database: Database, condition: str | None = None) -> tuple[int, str]:
        """Return how many rows there are, and their checksum."""
        where = f" WHERE {condition}" if condition else ""
        checksum = database.checksum(self.columns)
        count, found = database.row(f"SELECT count(*), {checksum} FROM {self.relation}{where}")
        return int(count), str(found if found is not None else "")


def look(database: Database, source: Source, origin: Jdbc) -> Look:
    """Return what a declaration means, or raise with what it gets wrong."""
    relation = database.relation(origin)
    columns = database.columns(relation)
    at = str(source.place)
    name = origin.table or "the query"
    _check_names(columns, name, at)
    keyed = origin.key or source.key
    key = tuple(_named(columns, one, "key", name, at) for one in keyed)
    mark = _named(columns, origin.watermark, "watermark", name, at) if origin.watermark else None
    if mark is not None and origin.overlap is not None:
        _check_overlap(mark, origin.overlap, database, at)
    return Look(origin, source, name, relation, columns, key, mark, _declared(database, source, origin, columns, key))


def _declared(
    database: Database, source: Source, origin: Jdbc, columns: Sequence[Column], key: Sequence[Column]
) -> str:
    """Return the hash. Columns that come to a table whose rows only follow each other change none of the earlier."""
    is_mirror = bool(key) or origin.watermark is None
    parts = [
        str(database.address),
        [origin.table, origin.query, origin.watermark, [column.name for column in key]],
        [repr(origin.schema), list(source.partition)],
        [[column.name, column.kind] for column in columns] if is_mirror else [],
        *(["keep"] if origin.removed == "keep" else []),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _check_names(columns: Sequence[Column], name: str, at: str) -> None:
    if not columns:
        raise Mistake("SOURCE_NO_COLUMNS", f"{name} has no columns", at=at, fix="select at least one")
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            what = f"{name} has the column `{column.name}` twice; case does not count"
            fix = 'give it another name: query="select a.id, b.id as other_id ..."'
            raise Mistake("SOURCE_COLUMN_TWICE", what, at=at, fix=fix)
        seen.add(column.name.lower())


def _named(columns: Sequence[Column], wanted: str, option: str, name: str, at: str) -> Column:
    for column in (*(one for one in columns if one.name == wanted), *columns):
        if column.name.lower() == wanted.lower():
            return column
    names = [column.name for column in columns]
    close = nearest(wanted, names)
    what = f"`{option}` names `{wanted}`, which {name} does not have" + (f"; close: `{close}`" if close else "")
    raise Mistake("SOURCE_COLUMN_MISSING", what, at=at, fix=f"its columns: {', '.join(names)}")


def _check_overlap(mark: Column, overlap: str, database: Database, at: str) -> None:
    is_number = mark.family == "number"
    if database.address.kind == "sqlite" or mark.family == ("time" if is_duration(overlap) else "number"):
        return
    what = f"`overlap` is {overlap}, but the watermark `{mark.name}` is {mark.kind}"
    fix = "write overlap=100, a number" if is_number else 'write overlap="10 minutes"'
    if mark.family == "other":
        fix = "leave overlap= out, or take a watermark that is a number or a time"
    raise Mistake("SOURCE_OVERLAP", what, at=at, fix=fix)
