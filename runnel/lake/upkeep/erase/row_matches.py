"""Find the rows of all versions of a table that a condition matches, file by file.

A column is known by its field id, whatever a version calls it. Rows are looked at where they stand in files, so those
that a delete hides are found as well. Reads only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, DoubleType, IcebergType, LongType, NestedField

from runnel.errors import Conflict, Mistake, nearest
from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.upkeep.erase.condition import Condition, told
from runnel.lake.upkeep.erase.version_rewriter import Held

if TYPE_CHECKING:
    from runnel.lake.store import Store

_PROBE_ID = 1_000_000  # no schema of a table; so files are read by field id, never by name
_NO_FIELD = 2_000_000_000  # a field id that no file has: its column is null
_FILES_AT_ONCE = 200
_BLOB = "blob"
Ids = tuple[int | None, ...]
"""For each column of a condition its field id, or None where a version does not have it."""


@dataclass
class Matches:
    """Rows that match: per data file their places, and the blobs that they refer to."""

    places: dict[str, "np.ndarray[Any, Any]"] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)
    tested: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Candidate:
    """A data file to look into, a version that has it, and what the condition's columns are in its versions."""

    entry: Entry
    metadata: TableMetadata
    ids: frozenset[Ids]


@dataclass(frozen=True)
class _Meaning:
    """What a version means by a field id. Branches may each have given one id to a column of their own."""

    field_id: int
    table: str
    first: str  # the schema in which it first appeared
    names: frozenset[str]  # that it ever had
    is_whole: bool  # no older schema was dropped by another engine

    def is_same(self, other: "_Meaning | None") -> bool:
        """Tell whether two versions mean the same column."""
        if other is None or (self.field_id, self.table) != (other.field_id, other.table):
            return False
        known = self.is_whole and other.is_whole
        return self.first == other.first or bool(self.names & other.names) or not known


class Columns:
    """What the columns of a condition are, in each version of a table."""

    def __init__(self, condition: Condition, newest: Sequence[Held], versions: Iterable[Held]) -> None:
        self.names = condition.columns
        self.types: dict[tuple[str, int], IcebergType] = {}
        known = sorted(versions, key=lambda held: -held.metadata.last_updated_ms)
        self._wanted = {name: self._meant(name, newest, known) for name in self.names}
        for name, meant in self._wanted.items():
            if not meant:
                raise _unknown(name, [*newest, *known])
        self._widen(known)
        self._found: dict[tuple[str, str], Ids] = {}

    def of(self, metadata: TableMetadata) -> Ids:
        """Return the field ids of the condition's columns in a version."""
        key = (str(metadata.table_uuid), repr(metadata.schemas))
        if key not in self._found:
            self._found[key] = tuple(self._one(metadata, name) for name in self.names)
        return self._found[key]

    def fields(self, ids: Ids) -> list[NestedField]:
        """Return the columns as fields to read; one that is not there reads as null."""
        found = []
        for at, (name, known) in enumerate(zip(self.names, ids, strict=True)):
            kind = self.types[name, known] if known is not None else self._any_type(name)
            found.append(NestedField(known if known is not None else _NO_FIELD + at, name, kind, required=False))
        return found

    def _one(self, metadata: TableMetadata, name: str) -> int | None:
        meant = {known.field_id for known in self._wanted[name] if known.is_same(_meaning(metadata, known.field_id))}
        if len(meant) > 1:
            raise _ambiguous(name)
        return next(iter(meant), None)

    def _meant(self, name: str, newest: Sequence[Held], known: Sequence[Held]) -> set[_Meaning]:
        """Return what a name means: on any branch, else when a version last had it; for each table of that name."""
        found: dict[str, set[_Meaning]] = {}
        for versions, only_first in ((newest, False), (known, True)):
            for held in versions:
                table = str(held.metadata.table_uuid)
                column = _column(held.metadata.schema(), name)
                meaning = _meaning(held.metadata, column.field_id) if column else None
                if meaning is not None and not (only_first and table in found):
                    found.setdefault(table, set()).add(meaning)
        return {meaning for meanings in found.values() for meaning in meanings}

    def _widen(self, versions: Iterable[Held]) -> None:
        """Note each column's widest type: a file of any version can be read as that."""
        for schema in {repr(s): s for held in versions for s in held.metadata.schemas}.values():
            for name, meant in self._wanted.items():
                for known in {meaning.field_id for meaning in meant}:
                    column = next((column for column in schema.fields if column.field_id == known), None)
                    if column is not None:
                        here = self.types.get((name, known))
                        self.types[name, known] = _wider(here, column.field_type)

    def _any_type(self, name: str) -> IcebergType:
        return next(kind for (known, _), kind in self.types.items() if known == name)


def find(
    store: "Store",
    condition: Condition,
    columns: Columns,
    versions: Iterable[Held],
    matches: Matches,
    progress: Callable[[int, int], None],
) -> None:
    """Look into every data file of the versions that was not looked into before, and add what matches."""
    groups: dict[tuple[Any, ...], list[_Candidate]] = {}
    candidates = _candidates(columns, versions, matches.tested)
    for candidate in candidates:
        ids = _agreed(columns, candidate)
        metadata = candidate.metadata
        mapping = metadata.properties.get("schema.name-mapping.default")
        key = (ids, metadata.location, is_file_table(metadata), repr(metadata.partition_specs), mapping)
        groups.setdefault(key, []).append(candidate)
    done = 0
    for (ids, _, has_blobs, *_rest), group in groups.items():
        fields = columns.fields(ids)
        sql = told(condition, {column.name: column for column in fields})
        for start in range(0, len(group), _FILES_AT_ONCE):
            part = group[start : start + _FILES_AT_ONCE]
            _look(store, part, fields, sql, has_blobs, matches)
            done += len(part)
            progress(done, len(candidates))


def _candidates(columns: Columns, versions: Iterable[Held], tested: set[str]) -> list[_Candidate]:
    found: dict[str, _Candidate] = {}
    for held in versions:
        ids = frozenset([columns.of(held.metadata)])
        for listed in (*held.current, *held.older):
            for entry in listed.live:
                if not entry.is_data or entry.path in tested:
                    continue
                before = found.get(entry.path)
                if before is None or not ids <= before.ids:
                    found[entry.path] = _Candidate(entry, held.metadata, ids | before.ids if before else ids)
    return list(found.values())


def _agreed(columns: Columns, candidate: _Candidate) -> Ids:
    """Return what the columns are in a file. A version that lacks a column has nothing to say about it."""
    found: list[int | None] = []
    for at, name in enumerate(columns.names):
        known = {ids[at] for ids in candidate.ids} - {None}
        if len(known) > 1:
            raise _ambiguous(name)
        found.append(next(iter(known), None))
    return tuple(found)


def _look(
    store: "Store", part: Sequence[_Candidate], fields: list[NestedField], where: str, has_blobs: bool, matches: Matches
) -> None:
    import duckdb

    metadata = part[0].metadata
    blob = _column(metadata.schema(), _BLOB) if has_blobs else None
    read = list(fields)
    if blob is not None and all(column.field_id != blob.field_id for column in fields):
        read.append(NestedField(blob.field_id, _BLOB, blob.field_type, required=False))
    schema = Schema(*read, schema_id=_PROBE_ID)
    probe = metadata.model_copy(update={"schemas": [schema], "current_schema_id": _PROBE_ID})
    rows = rows_sql(store, probe, [candidate.entry for candidate in part], places=True)
    shown = f", {_BLOB}" if blob is not None else ""
    sql = f'SELECT "{FILE_COLUMN}", "{POSITION_COLUMN}"{shown} FROM ({rows}) WHERE {where}'
    try:
        with connect() as connection:
            found = connection.execute(sql).fetchnumpy()
    except (duckdb.ConversionException, duckdb.BinderException, duckdb.OutOfRangeException) as error:
        what = f"the condition can't be compared with the table's columns: {str(error).splitlines()[0]}"
        raise Mistake("ERASE_CONDITION", what, fix="compare each column with values of its own type") from error
    _note(part, found, matches)
    matches.tested |= {candidate.entry.path for candidate in part}


def _note(part: Sequence[_Candidate], found: Mapping[str, Any], matches: Matches) -> None:
    paths = {plain(candidate.entry.path): candidate.entry.path for candidate in part}
    files, at = np.asarray(found[FILE_COLUMN], dtype=object), np.asarray(found[POSITION_COLUMN], dtype=np.int64)
    for file in set(files):
        matches.places[paths[file]] = np.unique(at[files == file])
    if _BLOB in found and len(files):
        blobs = found[_BLOB]
        matches.blobs |= {str(blob) for blob in np.ma.compressed(np.ma.asarray(blobs)) if blob is not None}


def _column(schema: Schema, name: str) -> NestedField | None:
    """Return a column by name; Spark does not tell upper case from lower."""
    found = [column for column in schema.fields if column.name.lower() == name]
    if len(found) > 1:
        raise _ambiguous(name)
    return found[0] if found else None


def _meaning(metadata: TableMetadata, field_id: int) -> _Meaning | None:
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    having = [schema for schema in schemas if any(known.field_id == field_id for known in schema.fields)]
    if not having:
        return None
    names = {known.name.lower() for schema in having for known in schema.fields if known.field_id == field_id}
    is_whole = [schema.schema_id for schema in schemas] == list(range(len(schemas)))
    return _Meaning(field_id, str(metadata.table_uuid), repr(having[0].fields), frozenset(names), is_whole)


def _wider(one: IcebergType | None, other: IcebergType) -> IcebergType:
    if one is None or isinstance(other, LongType | DoubleType):
        return other
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        return max(one, other, key=lambda kind: kind.precision)
    return one


def _ambiguous(name: str) -> Conflict:
    return Conflict(
        "ERASE_COLUMN_AMBIGUOUS",
        f"the column `{name}` is not the same one in all versions: it was dropped and added again, or spelled twice",
        fix="name another column in the condition, or rename it on the branches where it is another one",
    )


def _unknown(name: str, versions: Sequence[Held]) -> Mistake:
    close = nearest(name, versions[0].metadata.schema().column_names) if versions else None
    what = f"no version of the table has a column `{name}`" + (f"; close: `{close}`" if close else "")
    return Mistake("ERASE_COLUMN_UNKNOWN", what, fix="`runnel table NAME` lists its columns")
