"""Take the rows out of a version whose keys came anew or went: only files that have one of them are written again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from runnel.connect.feed.news import Part
from runnel.lake import tables
from runnel.lake.datafiles import ROW_GROUP_ROWS, RowWriter
from runnel.lake.duck import connect, told
from runnel.lake.duckdb_types import duckdb_type, exact_path, literal, quoted
from runnel.lake.manifests import Entry, entries
from runnel.lake.scan import FILE_COLUMN, rows_sql, spelled
from runnel.lake.storage import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_KEYS, _PRESENT = "runnel_keys", "runnel_present"


def displaced(
    store: "Store",
    base: str,
    metadata: "TableMetadata",
    added: "Sequence[DataFile]",
    key: Sequence[str],
    gone: Path | None,
    present: Sequence[Path] = (),
) -> "tuple[list[DataFile], list[Entry]]":
    """Return the files of a version that have rows which go, and files with their other rows.

    Rows go whose keys are in `added` or `gone` or, where there are files `present`, are in none of them. The other rows
    are written for `metadata`, the version with the columns that it will have.
    """
    before = tables.load(store, base)
    found = list(entries(store, before))
    files = [plain(file.file_path) for file in added] + ([str(gone)] if gone else [])
    if not found or not (files or present):
        return [], []
    with told(), connect() as con:
        goes = _listed(con, _KEYS, before, key, files)
        if present:
            goes = f"({goes} OR NOT {_listed(con, _PRESENT, before, key, [str(path) for path in present])})"
        rows = rows_sql(store, before, found, places=True)
        touched = con.execute(f"SELECT DISTINCT {quoted(FILE_COLUMN)} FROM ({rows}) AS old WHERE {goes}").fetchall()
        paths = {spelled(path) for (path,) in touched}
        removed = [entry for entry in found if entry.is_data and spelled(plain(entry.path)) in paths]
        if not removed:
            return [], []
        some = rows_sql(store, before, [*removed, *(entry for entry in found if not entry.is_data)])
        columns = [quoted(field.name) for field in before.schema().fields]
        kept = con.sql(f"SELECT {', '.join(columns)} FROM ({some}) AS old WHERE NOT {goes}")
        writer = RowWriter(store, metadata)
        for batch in cast("Iterable[pa.RecordBatch]", kept.to_arrow_reader(ROW_GROUP_ROWS)):
            writer.write(_widened(pa.Table.from_batches([batch]), writer.arrow_schema))
        return writer.close(), removed


@dataclass(frozen=True)
class Holding:
    """A version that rows are compared with; `base` is None where there is none yet."""

    store: "Store"
    base: str | None

    def rows_after(self, parts: Sequence[Part], key: Sequence[str]) -> int:
        """Return how many rows it has once those of Parquet files have taken the place of the ones with their keys."""
        with told(), connect() as con:
            count = con.execute(f"SELECT count(*) FROM {_read(parts)}").fetchall()[0][0] if parts else 0
            before, rows = self._rows()
            if before is None:
                return int(count)
            goes = _listed(con, _KEYS, before, key, [str(part.path) for part in parts])
            left = con.execute(f"SELECT count(*) FROM ({rows}) AS old WHERE NOT {goes}").fetchall()
            return int(count + left[0][0])

    def differing(self, parts: Sequence[Part], path: Path) -> bool:
        """Write the rows of Parquet files that it does not have; False where there is no version, or an empty one."""
        with told(), connect() as con:
            before, rows = self._rows()
            if before is None or not parts:
                return False
            described = con.execute(f"DESCRIBE SELECT * FROM {_read(parts)}").fetchall()
            there = {str(name).lower(): str(name) for name, *_ in described}
            same = " AND ".join(
                f"old.{quoted(one.name)} IS NOT DISTINCT FROM "
                f"TRY_CAST(new.{quoted(there[one.name.lower()])} AS {duckdb_type(one.field_type)})"
                for one in before.schema().fields
                if one.name.lower() in there
            )
            found = f"SELECT * FROM {_read(parts)} AS new WHERE NOT EXISTS (SELECT 1 FROM ({rows}) AS old WHERE {same})"
            con.execute(f"COPY ({found}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)")
            return True

    def _rows(self) -> "tuple[TableMetadata | None, str]":
        before = tables.load(self.store, self.base) if self.base is not None else None
        found = list(entries(self.store, before)) if before is not None else []
        return (before, rows_sql(self.store, before, found)) if before is not None and found else (None, "")


def _read(parts: Sequence[Part]) -> str:
    paths = ", ".join(exact_path(str(part.path)) for part in parts)
    return f"read_parquet([{paths}], hive_partitioning = false)"


def _listed(
    con: "duckdb.DuckDBPyConnection", name: str, before: "TableMetadata", key: Sequence[str], files: Sequence[str]
) -> str:
    """Keep the keys of files as a table, in the types of a version; return the SQL of whether it has that of `old`."""
    fields = [before.schema().find_field(one, case_sensitive=False) for one in key]
    columns = ", ".join(
        f"CAST({quoted(one.name)} AS {duckdb_type(one.field_type)}) AS {quoted(one.name)}" for one in fields
    )
    union = " UNION ".join(
        f"SELECT {columns} FROM read_parquet({exact_path(file)}, hive_partitioning = false)" for file in files
    )
    nulls = ", ".join(f"CAST(NULL AS {duckdb_type(one.field_type)}) AS {quoted(one.name)}" for one in fields)
    con.execute(f"CREATE TEMP TABLE {name} AS {union or f'SELECT {nulls} WHERE false'}")
    same = " AND ".join(f"old.{quoted(one.name)} IS NOT DISTINCT FROM {name}.{quoted(one.name)}" for one in fields)
    return f"EXISTS (SELECT 1 FROM {name} WHERE {same})"


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns that the table has gained since, null in them."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows
