"""Take the rows out of a version whose keys came anew or went.

Of a large file that loses few rows those are marked as deleted, so that what is written follows the change; any other
file is written again without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from runnel.connect.feed.key_table import kept_keys
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.iceberg.position_delete_writer import Partition, mark
from runnel.lake.scan.duckdb_connection import connect, told
from runnel.lake.scan.duckdb_types import literal, quoted
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, deleted_sql, partition_of, rows_sql, spelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

LARGE_BYTES = 1024 * 1024  # a smaller file is written again in no time
MOST_MARKED = 0.1  # of a file's rows: with more, reading past them costs more than writing the file again
MOST_MARKS = 8  # files of deletes in a partition; then they are put together
PLACES = f"old.{quoted(FILE_COLUMN)} AS file, old.{quoted(POSITION_COLUMN)} AS pos"
_KEYS, _PRESENT, _GONE = "runnel_keys", "runnel_present", "runnel_gone"


@dataclass(frozen=True)
class Displaced:
    """Files that a version gains, and those that it loses, so that the rows which go are not in it any more."""

    added: "tuple[DataFile, ...]" = ()
    removed: tuple[Entry, ...] = ()


def displaced(
    store: "Store",
    base: str,
    metadata: "TableMetadata",
    added: "Sequence[DataFile]",
    key: Sequence[str],
    gone: Path | None = None,
    present: Sequence[Path] = (),
    places: "pa.Table | None" = None,
) -> Displaced:
    """Return what takes rows out of a version; `places` of them, where those are known already.

    Rows go whose keys are in `added` or `gone` or, where there are files `present`, are in none of them. Other rows of
    files that are written again are written for `metadata`, the version with the columns that it will have.
    """
    before = table_metadata.load(store, base)
    found = list(entries(store, before))
    files = [plain(file.file_path) for file in added] + ([str(gone)] if gone else [])
    if not found or not (files or present):
        return Displaced()
    with told(), connect() as con:
        if places is not None:
            con.register(_GONE, places)
        else:
            goes = kept_keys(con, _KEYS, before, key, files)
            if present:
                goes = f"({goes} OR NOT {kept_keys(con, _PRESENT, before, key, [str(path) for path in present])})"
            rows = rows_sql(store, before, found, places=True)
            con.execute(f"CREATE TEMP TABLE {_GONE} AS SELECT {PLACES} FROM ({rows}) AS old WHERE {goes}")
        return _Taking(store, con, before, metadata, found).taken()


class _Taking:
    """Takes rows at known places out of a version with certain files."""

    def __init__(
        self,
        store: "Store",
        con: "duckdb.DuckDBPyConnection",
        before: "TableMetadata",
        metadata: "TableMetadata",
        found: Sequence[Entry],
    ) -> None:
        self._store = store
        self._con = con
        self._before = before
        self._metadata = metadata
        self._data = {spelled(plain(entry.path)): entry for entry in found if entry.is_data}
        self._deletes = [entry for entry in found if not entry.is_data]

    def taken(self) -> Displaced:
        """Return what takes them out."""
        going = self._counted(f"SELECT file, count(*) FROM {_GONE} GROUP BY file")
        gone = self._counted(self._marked_before("gone_file, count(DISTINCT gone_pos)") + " GROUP BY gone_file")
        again: list[Entry] = []
        marked: list[Entry] = []
        for path, count in going.items():
            entry = self._data.pop(path)
            is_large = entry.file.file_size_in_bytes >= LARGE_BYTES
            is_few = count + gone.get(path, 0) <= MOST_MARKED * entry.file.record_count
            (marked if is_large and is_few else again).append(entry)
        made, dropped = self._marks(marked, [*marked, *self._data.values()])
        return Displaced((*self._written(again), *made), (*again, *dropped))

    def _counted(self, sql: str) -> dict[str, int]:
        return {spelled(path): int(count) for path, count in self._con.execute(sql).fetchall()}

    def _marked_before(self, columns: str, data: Sequence[Entry] | None = None) -> str:
        """Return a SELECT of the places that are deleted in this version already."""
        held = list(self._data.values()) if data is None else data
        if not (self._deletes and held):
            return f"SELECT {columns} FROM (SELECT '' AS gone_file, 0 AS gone_pos WHERE false)"
        return f"SELECT {columns} FROM ({deleted_sql(held, self._deletes)})"

    def _written(self, again: Sequence[Entry]) -> "list[DataFile]":
        """Write the rows of files that stay."""
        if not again:
            return []
        some = rows_sql(self._store, self._before, [*again, *self._deletes], places=True)
        columns = [quoted(field.name) for field in self._before.schema().fields]
        same = f"old.{quoted(FILE_COLUMN)} = gone.file AND old.{quoted(POSITION_COLUMN)} = gone.pos"
        kept = self._con.sql(f"SELECT {', '.join(columns)} FROM ({some}) AS old ANTI JOIN {_GONE} AS gone ON {same}")
        writer = RowWriter(self._store, self._metadata)
        for batch in cast("Iterable[pa.RecordBatch]", kept.to_arrow_reader(ROW_GROUP_ROWS)):
            writer.write(_widened(pa.Table.from_batches([batch]), writer.arrow_schema))
        return writer.close()

    def _marks(self, marked: Sequence[Entry], left: Sequence[Entry]) -> "tuple[list[DataFile], list[Entry]]":
        """Mark rows, partition by partition; return also the deletes whose places the new ones have taken over."""
        made: list[DataFile] = []
        dropped: list[Entry] = []
        for at, group in _by_partition(marked).items():
            old = [entry for entry in self._deletes if partition_of(entry) == at]
            places = f"SELECT file, pos FROM {_GONE}"
            if len(old) >= MOST_MARKS:
                group = [entry for entry in left if partition_of(entry) == at]
                places += f" UNION {self._marked_before('gone_file AS file, gone_pos AS pos', group)}"
                dropped += old
            partition = Partition(group[0].file.spec_id, group[0].file.partition)
            made.append(mark(self._store, self._metadata, partition, self._sorted(places, group)))
        return made, dropped

    def _sorted(self, places: str, data: Sequence[Entry]) -> "Iterator[pa.RecordBatch]":
        """Yield places in some files, each called as the version's manifests call it."""
        named = ", ".join(f"({literal(plain(entry.path))}, {literal(entry.path)})" for entry in data)
        sql = (
            f"SELECT named.file_path, places.pos FROM ({places}) AS places"
            f" JOIN (VALUES {named}) AS named(file, file_path) USING (file) ORDER BY ALL"
        )
        yield from self._con.sql(sql).to_arrow_reader(ROW_GROUP_ROWS)


def _by_partition(found: Sequence[Entry]) -> dict[tuple[int, Any], list[Entry]]:
    groups: dict[tuple[int, Any], list[Entry]] = {}
    for entry in found:
        groups.setdefault(partition_of(entry), []).append(entry)
    return groups


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns that the table has gained since, null in them."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows
