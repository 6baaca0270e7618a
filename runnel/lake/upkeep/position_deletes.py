"""Read position deletes: which data files they name, and which rows of them.

Reads delete files only.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_literal
from runnel.lake.scan.registered_files import read_footer
from runnel.lake.scan.scan_sql import normalize_file_path, partition_of

if TYPE_CHECKING:
    import numpy as np

_PLAIN_COLUMNS = {"file_path", "pos"}


def read_data_file_names(deletes: Sequence[FileEntry]) -> dict[str, frozenset[str]]:
    """Return the names, as `spelled`, of the data files that each delete file names."""
    if not deletes:
        return {}
    with connect_duckdb() as connection:
        pairs = connection.execute(f"SELECT DISTINCT place, named FROM {_build_source_sql(deletes)}").fetchall()
    names_by_path: dict[str, set[str]] = {}
    for delete_path, name in pairs:
        names_by_path.setdefault(delete_path, set()).add(name)
    return {entry.path: frozenset(names_by_path.get(normalize_location(entry.path), ())) for entry in deletes}


def applies_to(delete: FileEntry, data: FileEntry, names: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a delete file deletes rows of a data file: names it, has its partition, and is not older."""
    return (
        normalize_file_path(data.path) in names.get(delete.path, frozenset())
        and delete.sequence >= data.sequence
        and partition_of(delete) == partition_of(data)
    )


def count_deleted_rows(pairs: Sequence[tuple[FileEntry, FileEntry]]) -> dict[str, int]:
    """Return how many rows of each data file are deleted, for pairs of a delete file and a data file it applies to."""
    if not pairs:
        return {}
    pair_values = ", ".join(
        f"({quote_literal(normalize_location(delete.path))}, {quote_literal(normalize_file_path(data.path))})"
        for delete, data in pairs
    )
    deletes = list({delete.path: delete for delete, _ in pairs}.values())
    sql = (
        f"SELECT named, count(DISTINCT pos) FROM {_build_source_sql(deletes)}"
        f" JOIN (VALUES {pair_values}) AS wanted(place, named) USING (place, named) GROUP BY named"
    )
    with connect_duckdb() as connection:
        counts_by_name: dict[str, int] = dict(connection.execute(sql).fetchall())
    return {data.path: counts_by_name.get(normalize_file_path(data.path), 0) for _, data in pairs}


def read_positions(deletes: Sequence[FileEntry], data: FileEntry) -> "np.ndarray[Any, Any]":
    """Return the positions of the rows of a data file that delete files name, in order."""
    import numpy as np

    if not deletes:
        return np.empty(0, dtype=np.int64)
    sql = (
        f"SELECT DISTINCT pos FROM {_build_source_sql(deletes)} WHERE named = "
        f"{quote_literal(normalize_file_path(data.path))} ORDER BY pos"
    )
    with connect_duckdb() as connection:
        column: np.ndarray[Any, Any] = connection.execute(sql).fetchnumpy()["pos"]
    return np.asarray(column, dtype=np.int64)


def has_row_copies(delete: FileEntry) -> bool:
    """Return whether a delete file also keeps copies of the rows that it deletes."""
    return not set(read_footer(normalize_location(delete.path)).names) <= _PLAIN_COLUMNS


def _build_source_sql(deletes: Sequence[FileEntry]) -> str:
    paths = ", ".join(quote_exact_path(normalize_location(entry.path)) for entry in deletes)
    scan = f"read_parquet([{paths}], hive_partitioning = false, filename = true, union_by_name = true)"
    return f"(SELECT filename AS place, regexp_replace(file_path, '^file:/+', '/') AS named, pos FROM {scan})"
