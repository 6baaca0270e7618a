"""Compute the rows in which two versions of a table differ, as signed counts per distinct row.

Reads only the files that differ. Rows are compared on the columns that both versions have, matched by field id, in
the newer version's types; a column that only one version has is a schema change, not a row change. The contents of
file tables are not compared: their checksums are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType

from runnel.errors import RunnelError
from runnel.lake.diff.compared_columns import ComparedColumn, find_common_columns, is_directly_comparable
from runnel.lake.diff.file_delta import compute_file_delta, find_differing_files
from runnel.lake.diff.net_rows import COUNT, RowNetting, SignedFiles
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.manifests import FileEntry, read_entries, read_manifests
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    from runnel.lake.store import Store

MAX_BYTES = 4 * 2**30


class DiffTooLarge(RunnelError):
    """The files that differ are too large to compare row by row."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(
            "DIFF_TOO_LARGE",
            f"{size / 2**30:.1f} GiB of files differ; rows are compared "
            f"one by one only up to {max_bytes / 2**30:.1f} GiB",
            fix="compare with a query of your own: runnel query --at REF",
        )


@dataclass(frozen=True)
class _VersionFiles:
    """A version of a table, and those of its files whose rows are compared with the other version's."""

    metadata: TableMetadata
    entries: Sequence[FileEntry]


def count_changed_rows(
    store: "Store", before: str | None, after: str | None, max_bytes: int = MAX_BYTES
) -> tuple[int, int]:
    """Return how many rows were added and how many were removed; raise Unscannable or DiffTooLarge if unknown."""
    if before is None or after is None:
        return _count_all_rows(store, after), _count_all_rows(store, before)
    file_changes = compute_file_delta(store, before, after)
    if file_changes.appends_only:
        return sum(entry.file.record_count for entry in file_changes.added), 0
    removed_entries, added_entries = find_differing_files(store, before, after, file_changes)
    if not (removed_entries and added_entries) and all(entry.is_data for entry in (*removed_entries, *added_entries)):
        return tuple(
            sum(entry.file.record_count for entry in side_entries) for side_entries in (added_entries, removed_entries)
        )  # type: ignore[return-value]
    netting = _build_netting(
        _VersionFiles(load_metadata(store, before), removed_entries),
        _VersionFiles(load_metadata(store, after), added_entries),
    )
    check_size(netting, max_bytes)
    sql = netting.build_net_select(store)
    added_sum, removed_sum = (
        f"coalesce(sum({function}({quote_identifier(COUNT)}, 0)), 0)" for function in ("greatest", "least")
    )
    added, removed = _fetch_counts(f"SELECT CAST({added_sum} AS BIGINT), CAST({removed_sum} AS BIGINT) FROM ({sql})")
    return added, -removed


def check_size(netting: RowNetting, max_bytes: int = MAX_BYTES) -> None:
    """Raise DiffTooLarge if this process should not compare so many bytes; contents of file tables don't count."""
    if netting.bytes > max_bytes and not table_properties.is_file_table(netting.sides[0].metadata):
        raise DiffTooLarge(netting.bytes, max_bytes)


def plan_netting(store: "Store", before: str | None, after: str | None) -> RowNetting:
    """Return how the rows that differ between two versions are netted, whatever their size."""
    return _build_netting(*_find_differing_rows(store, before, after))


def _find_differing_rows(store: "Store", before: str | None, after: str | None) -> tuple[_VersionFiles, _VersionFiles]:
    old, new = find_differing_files(store, before, after, compute_file_delta(store, before, after))
    before_metadata, after_metadata = (
        load_metadata(store, location) if location else None for location in (before, after)
    )
    existing_metadata = before_metadata or after_metadata
    assert existing_metadata is not None
    return (
        _VersionFiles(before_metadata or existing_metadata, old),
        _VersionFiles(after_metadata or existing_metadata, new),
    )


def _build_netting(before: _VersionFiles, after: _VersionFiles) -> RowNetting:
    is_file_table = table_properties.is_file_table(after.metadata)
    pairs = [
        pair
        for pair in find_common_columns(before.metadata, after.metadata)
        if not (is_file_table and pair[1].name == "content")
    ]
    columns = tuple(ComparedColumn(after_field.name, after_field.field_type) for _, after_field in pairs)
    sides = []
    for sign, side, side_index in ((1, after, 1), (-1, before, 0)):
        select_list = tuple(
            f"CAST({quote_identifier(pair[side_index].name)} AS "
            f"{to_duckdb_type(pair[1].field_type)}) AS {quote_identifier(pair[1].name)}"
            for pair in pairs
        )
        sides.append(SignedFiles(side.metadata, tuple(side.entries), sign, select_list))
    return RowNetting(tuple(sides), columns, group_rows_sql)


def group_rows_sql(rows: str, columns: Sequence[ComparedColumn]) -> str:
    """Return a SELECT of the distinct rows whose counts do not cancel out, with the sum of their counts."""
    float_columns = [
        quote_identifier(column.name) for column in columns if isinstance(column.kind, DoubleType | FloatType)
    ]
    zero_signs = [f"({name} = 0 AND signbit({name}))" for name in float_columns]  # DuckDB treats -0.0 and 0.0 as equal
    keys = ", ".join([*(column.key_expression for column in columns), *zero_signs]) or "1 = 1"
    select_list = "".join(
        f", {name if is_directly_comparable(column.kind) else f'any_value({name})'} AS {name}"
        for column in columns
        for name in [quote_identifier(column.name)]
    )
    total = f"sum({quote_identifier(COUNT)})"
    return f"SELECT {total} AS {quote_identifier(COUNT)}{select_list} FROM ({rows}) GROUP BY {keys} HAVING {total} <> 0"


def _count_all_rows(store: "Store", location: str | None) -> int:
    """Return the row count of a version, from its manifests if they list no deletes."""
    if location is None:
        return 0
    metadata = load_metadata(store, location)
    manifest_files = read_manifests(store, metadata)
    if any(manifest.content == ManifestContent.DELETES for manifest in manifest_files):
        return _fetch_counts(f"SELECT count(*), 0 FROM ({rows_sql(store, metadata)})")[0]
    if any(manifest.added_rows_count is None or manifest.existing_rows_count is None for manifest in manifest_files):
        return sum(entry.file.record_count for entry in read_entries(store, metadata))
    return sum((manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0) for manifest in manifest_files)


def _fetch_counts(sql: str) -> tuple[int, int]:
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors

    with translate_duckdb_errors(), connect_duckdb() as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
