"""The table that a feed fetches for: how many rows it would have, and which rows it lacks."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.key_table import kept_keys
from runnel.connect.feed.protocol import Part
from runnel.connect.feed.upsert import PLACES
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import Entry, entries
from runnel.lake.scan.duckdb_connection import connect, told
from runnel.lake.scan.duckdb_types import duckdb_type, exact_path, literal, quoted
from runnel.lake.scan.scan_sql import deleted_sql, rows_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_MOST_REMEMBERED = 1_000_000  # places


class Holding:
    """A version that rows are compared with; `base` is None where there is none yet.

    `places` are those of the rows with the keys last asked about, where it is sure that rows read from the same files
    will have the same keys: as many rows, of the same types.
    """

    def __init__(self, store: "Store", base: str | None) -> None:
        self._store = store
        self._base = base
        self._rows = 0
        self._places: pa.Table | None = None

    @cached_property
    def _before(self) -> "TableMetadata | None":
        return table_metadata.load(self._store, self._base) if self._base is not None else None

    @cached_property
    def _found(self) -> list[Entry]:
        return list(entries(self._store, self._before)) if self._before is not None else []

    def rows_after(self, parts: Sequence[Part], key: Sequence[str]) -> int:
        """Return how many rows it has once those of Parquet files have taken the place of the ones with their keys."""
        with told(), connect() as con:
            self._rows = int(con.execute(f"SELECT count(*) FROM {_read(parts)}").fetchall()[0][0]) if parts else 0
            if self._before is None or not self._found:
                return self._rows
            goes = kept_keys(con, "runnel_keys", self._before, key, [str(part.path) for part in parts])
            rows = rows_sql(self._store, self._before, self._found, places=True)
            con.execute(f"CREATE TEMP TABLE places AS SELECT {PLACES} FROM ({rows}) AS old WHERE {goes}")
            count = int(con.execute("SELECT count(*) FROM places").fetchall()[0][0])
            if count <= _MOST_REMEMBERED and parts and _is_as_read(con, self._before, parts, key):
                self._places = con.sql("SELECT * FROM places").to_arrow_table()
            return self._rows + _live(con, self._found) - count

    def differing(self, parts: Sequence[Part], path: Path) -> bool:
        """Write the rows of Parquet files that it does not have; False where there is no version, or an empty one."""
        if self._before is None or not self._found or not parts:
            return False
        with told(), connect() as con:
            described = con.execute(f"DESCRIBE SELECT * FROM {_read(parts)}").fetchall()
            there = {str(name).lower(): str(name) for name, *_ in described}
            same = " AND ".join(
                f"old.{quoted(one.name)} IS NOT DISTINCT FROM "
                f"TRY_CAST(new.{quoted(there[one.name.lower()])} AS {duckdb_type(one.field_type)})"
                for one in self._before.schema().fields
                if one.name.lower() in there
            )
            rows = rows_sql(self._store, self._before, self._found)
            found = f"SELECT * FROM {_read(parts)} AS new WHERE NOT EXISTS (SELECT 1 FROM ({rows}) AS old WHERE {same})"
            con.execute(f"COPY ({found}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)")
            return True

    def places(self, rows: int) -> "pa.Table | None":
        """Return where the rows are that those of the files last asked about displace, if so many came of them."""
        return self._places if rows == self._rows else None


def _live(con: "duckdb.DuckDBPyConnection", found: Sequence[Entry]) -> int:
    data = [entry for entry in found if entry.is_data]
    deletes = [entry for entry in found if not entry.is_data]
    count = sum(entry.file.record_count for entry in data)
    if not (data and deletes):
        return count
    gone = con.execute(f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({deleted_sql(data, deletes)}))").fetchall()
    return count - int(gone[0][0])


def _is_as_read(
    con: "duckdb.DuckDBPyConnection", before: "TableMetadata", parts: Sequence[Part], key: Sequence[str]
) -> bool:
    """Tell whether the key has the table's own types in files, so that reading them converts nothing."""
    described = con.execute(f"DESCRIBE SELECT * FROM {_read(parts)}").fetchall()
    types = {str(name).lower(): str(kind) for name, kind, *_ in described}
    fields = [before.schema().find_field(one, case_sensitive=False) for one in key]
    return all(types.get(one.name.lower()) == duckdb_type(one.field_type) for one in fields)


def _read(parts: Sequence[Part]) -> str:
    paths = ", ".join(exact_path(str(part.path)) for part in parts)
    return f"read_parquet([{paths}], hive_partitioning = false)"
