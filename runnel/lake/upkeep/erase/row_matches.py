"""Plan the search for the rows of all versions of a table that a condition matches, file by file.

A column is identified by its field id, whatever a version calls it. `file_search.py` searches the files.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, DoubleType, IcebergType, LongType, NestedField

from runnel.errors import Conflict, Mistake, did_you_mean
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.upkeep.erase.condition import Condition, render_condition
from runnel.lake.upkeep.erase.file_search import BLOB, MatchingRows, SearchGroup, build_search_group
from runnel.lake.upkeep.erase.version_rewriter import LoadedVersion
from runnel.lake.upkeep.position_set import PositionSet

_NO_FIELD = 2_000_000_000  # a field id that no file has: its column is null
FieldIds = tuple[int | None, ...]
"""The field id of each column of a condition, or None if a version does not have the column."""


@dataclass
class RowMatches:
    """The positions of matching rows by data file, the blobs that they refer to, and the files that were searched."""

    positions_by_file: dict[str, PositionSet] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)
    searched_files: set[str] = field(default_factory=set)

    def add(self, unit: SearchGroup, rows: MatchingRows) -> None:
        """Add what the search of some files found."""
        self.positions_by_file |= rows.positions_by_file
        self.blobs |= rows.blobs
        self.searched_files |= {entry.path for entry in unit.entries}


@dataclass(frozen=True)
class _FileCandidate:
    """A data file to search, the metadata of a version that has it, and the field ids in all its versions."""

    entry: FileEntry
    metadata: TableMetadata
    field_ids: frozenset[FieldIds]


@dataclass(frozen=True)
class _ColumnIdentity:
    """What a field id stands for in a version. Branches may have given the same id to different columns."""

    field_id: int
    table: str
    first_schema: str  # the schema in which the column first appeared
    names: frozenset[str]  # all names that the column ever had
    has_all_schemas: bool  # no other engine dropped an older schema

    def is_same_column(self, other: "_ColumnIdentity | None") -> bool:
        """Return whether two versions mean the same column."""
        if other is None or (self.field_id, self.table) != (other.field_id, other.table):
            return False
        are_histories_complete = self.has_all_schemas and other.has_all_schemas
        return self.first_schema == other.first_schema or bool(self.names & other.names) or not are_histories_complete


class ConditionColumns:
    """The columns of a condition, resolved in each version of a table."""

    def __init__(
        self, condition: Condition, newest: Sequence[LoadedVersion], versions: Iterable[LoadedVersion]
    ) -> None:
        self.condition, self.names = condition, condition.columns
        self.types: dict[tuple[str, int], IcebergType] = {}
        versions_by_age = sorted(versions, key=lambda version: -version.metadata.last_updated_ms)
        self._identities = {name: self._find_identities(name, newest, versions_by_age) for name in self.names}
        for name, identities in self._identities.items():
            if not identities:
                raise _unknown_column_error(name, [*newest, *versions_by_age])
        self._collect_types(versions_by_age)
        self._field_ids: dict[tuple[str, str], FieldIds] = {}

    def find_field_ids(self, metadata: TableMetadata) -> FieldIds:
        """Return the field ids of the condition's columns in a version."""
        key = (str(metadata.table_uuid), repr(metadata.schemas))
        if key not in self._field_ids:
            self._field_ids[key] = tuple(self._find_field_id(metadata, name) for name in self.names)
        return self._field_ids[key]

    def build_fields(self, ids: FieldIds) -> list[NestedField]:
        """Return the columns as fields to read; a column without a field id reads as null."""
        fields = []
        for index, (name, field_id) in enumerate(zip(self.names, ids, strict=True)):
            kind = self.types[name, field_id] if field_id is not None else self._find_any_type(name)
            fields.append(
                NestedField(field_id if field_id is not None else _NO_FIELD + index, name, kind, required=False)
            )
        return fields

    def _find_field_id(self, metadata: TableMetadata, name: str) -> int | None:
        field_ids = {
            identity.field_id
            for identity in self._identities[name]
            if identity.is_same_column(_find_identity(metadata, identity.field_id))
        }
        if len(field_ids) > 1:
            raise _ambiguous_column_error(name)
        return next(iter(field_ids), None)

    def _find_identities(
        self, name: str, newest: Sequence[LoadedVersion], versions_by_age: Sequence[LoadedVersion]
    ) -> set[_ColumnIdentity]:
        """Return the columns that a name refers to on any branch, else in the last version that had it, per table."""
        identities_by_table: dict[str, set[_ColumnIdentity]] = {}
        for versions, only_first in ((newest, False), (versions_by_age, True)):
            for version in versions:
                table = str(version.metadata.table_uuid)
                column = _find_column(version.metadata.schema(), name)
                identity = _find_identity(version.metadata, column.field_id) if column else None
                if identity is not None and not (only_first and table in identities_by_table):
                    identities_by_table.setdefault(table, set()).add(identity)
        return {identity for identities in identities_by_table.values() for identity in identities}

    def _collect_types(self, versions: Iterable[LoadedVersion]) -> None:
        """Collect each column's widest type: a file of any version can be read with it."""
        for schema in {repr(s): s for version in versions for s in version.metadata.schemas}.values():
            for name, identities in self._identities.items():
                for field_id in {identity.field_id for identity in identities}:
                    column = next((column for column in schema.fields if column.field_id == field_id), None)
                    if column is not None:
                        current_type = self.types.get((name, field_id))
                        self.types[name, field_id] = _choose_wider_type(current_type, column.field_type)

    def _find_any_type(self, name: str) -> IcebergType:
        return next(kind for (column_name, _), kind in self.types.items() if column_name == name)


def plan_search(
    columns: ConditionColumns, versions: Iterable[LoadedVersion], searched_files: Collection[str]
) -> list[SearchGroup]:
    """Return the data files of the versions that were not searched before."""
    groups: dict[tuple[Any, ...], list[_FileCandidate]] = {}
    for candidate in _collect_candidates(columns, versions, searched_files):
        ids = _agree_field_ids(columns, candidate)
        metadata = candidate.metadata
        mapping = metadata.properties.get("schema.name-mapping.default")
        key = (ids, metadata.location, is_file_table(metadata), repr(metadata.partition_specs), mapping)
        groups.setdefault(key, []).append(candidate)
    return [_build_group(columns, ids, group) for (ids, *_rest), group in groups.items()]


def _build_group(columns: ConditionColumns, ids: FieldIds, group: Sequence[_FileCandidate]) -> SearchGroup:
    metadata, fields = group[0].metadata, columns.build_fields(ids)
    condition_sql = render_condition(columns.condition, {column.name: column for column in fields})
    blob_field = _find_column(metadata.schema(), BLOB) if is_file_table(metadata) else None
    return build_search_group(metadata, fields, blob_field, condition_sql, [candidate.entry for candidate in group])


def _collect_candidates(
    columns: ConditionColumns, versions: Iterable[LoadedVersion], searched_files: Collection[str]
) -> list[_FileCandidate]:
    candidates: dict[str, _FileCandidate] = {}
    for version in versions:
        ids = frozenset([columns.find_field_ids(version.metadata)])
        for listing in (*version.current_manifests, *version.older_manifests):
            for entry in listing.live_entries:
                if not entry.is_data or entry.path in searched_files:
                    continue
                previous = candidates.get(entry.path)
                if previous is None or not ids <= previous.field_ids:
                    candidates[entry.path] = _FileCandidate(
                        entry, version.metadata, ids | previous.field_ids if previous else ids
                    )
    return list(candidates.values())


def _agree_field_ids(columns: ConditionColumns, candidate: _FileCandidate) -> FieldIds:
    """Return the field ids of the columns in a file. A version that lacks a column is ignored for it."""
    agreed_ids: list[int | None] = []
    for index, name in enumerate(columns.names):
        distinct_ids = {ids[index] for ids in candidate.field_ids} - {None}
        if len(distinct_ids) > 1:
            raise _ambiguous_column_error(name)
        agreed_ids.append(next(iter(distinct_ids), None))
    return tuple(agreed_ids)


def _find_column(schema: Schema, name: str) -> NestedField | None:
    """Return a column by name, ignoring case as Spark does."""
    columns = [column for column in schema.fields if column.name.lower() == name]
    if len(columns) > 1:
        raise _ambiguous_column_error(name)
    return columns[0] if columns else None


def _find_identity(metadata: TableMetadata, field_id: int) -> _ColumnIdentity | None:
    schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id)
    schemas_with_field = [schema for schema in schemas if any(column.field_id == field_id for column in schema.fields)]
    if not schemas_with_field:
        return None
    names = {
        column.name.lower() for schema in schemas_with_field for column in schema.fields if column.field_id == field_id
    }
    has_all_schemas = [schema.schema_id for schema in schemas] == list(range(len(schemas)))
    return _ColumnIdentity(
        field_id, str(metadata.table_uuid), repr(schemas_with_field[0].fields), frozenset(names), has_all_schemas
    )


def _choose_wider_type(current: IcebergType | None, other: IcebergType) -> IcebergType:
    if current is None or isinstance(other, LongType | DoubleType):
        return other
    if isinstance(current, DecimalType) and isinstance(other, DecimalType):
        return max(current, other, key=lambda kind: kind.precision)
    return current


def _ambiguous_column_error(name: str) -> Conflict:
    return Conflict(
        "ERASE_COLUMN_AMBIGUOUS",
        f"the column `{name}` is not the same one in all versions: it was dropped and added again, or spelled twice",
        fix="name another column in the condition, or rename it on the branches where it is a different column",
    )


def _unknown_column_error(name: str, versions: Sequence[LoadedVersion]) -> Mistake:
    column_names = versions[0].metadata.schema().column_names if versions else ()
    what = f"no version of the table has a column `{name}`" + did_you_mean(name, column_names)
    return Mistake("ERASE_COLUMN_UNKNOWN", what, fix="`runnel table NAME` lists its columns")
