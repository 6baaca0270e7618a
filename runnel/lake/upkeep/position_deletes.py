"""Position deletes: which data files they name, and which rows there.

Reads delete files only.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.duckdb_types import exact_path, literal
from runnel.lake.scan.registered_files import footer
from runnel.lake.scan.scan_sql import partition_of, spelled

if TYPE_CHECKING:
    import numpy as np

_PLAIN_COLUMNS = {"file_path", "pos"}


def named(deletes: Sequence[Entry]) -> dict[str, frozenset[str]]:
    """Return per delete file the data files, as `spelled`, that it names."""
    if not deletes:
        return {}
    with connect() as connection:
        pairs = connection.execute(f"SELECT DISTINCT place, named FROM {_source(deletes)}").fetchall()
    found: dict[str, set[str]] = {}
    for place, name in pairs:
        found.setdefault(place, set()).add(name)
    return {entry.path: frozenset(found.get(plain(entry.path), ())) for entry in deletes}


def apply(delete: Entry, data: Entry, names: Mapping[str, frozenset[str]]) -> bool:
    """Tell whether a delete file removes rows of a data file: it names it, in its partition, and is not older."""
    return (
        spelled(data.path) in names.get(delete.path, frozenset())
        and delete.sequence >= data.sequence
        and partition_of(delete) == partition_of(data)
    )


def counts(pairs: Sequence[tuple[Entry, Entry]]) -> dict[str, int]:
    """Return per data file how many rows are deleted, for pairs of a delete file and a data file that it applies to."""
    if not pairs:
        return {}
    wanted = ", ".join(f"({literal(plain(delete.path))}, {literal(spelled(data.path))})" for delete, data in pairs)
    deletes = list({delete.path: delete for delete, _ in pairs}.values())
    sql = (
        f"SELECT named, count(DISTINCT pos) FROM {_source(deletes)}"
        f" JOIN (VALUES {wanted}) AS wanted(place, named) USING (place, named) GROUP BY named"
    )
    with connect() as connection:
        found: dict[str, int] = dict(connection.execute(sql).fetchall())
    return {data.path: found.get(spelled(data.path), 0) for _, data in pairs}


def positions(deletes: Sequence[Entry], data: Entry) -> "np.ndarray[Any, Any]":
    """Return the rows of a data file that delete files name, in order."""
    import numpy as np

    if not deletes:
        return np.empty(0, dtype=np.int64)
    sql = f"SELECT DISTINCT pos FROM {_source(deletes)} WHERE named = {literal(spelled(data.path))} ORDER BY pos"
    with connect() as connection:
        found: np.ndarray[Any, Any] = connection.execute(sql).fetchnumpy()["pos"]
    return np.asarray(found, dtype=np.int64)


def holds_rows(delete: Entry) -> bool:
    """Tell whether a delete file also keeps copies of the rows that it deletes."""
    return not set(footer(plain(delete.path)).names) <= _PLAIN_COLUMNS


def _source(deletes: Sequence[Entry]) -> str:
    paths = ", ".join(exact_path(plain(entry.path)) for entry in deletes)
    read = f"read_parquet([{paths}], hive_partitioning = false, filename = true, union_by_name = true)"
    return f"(SELECT filename AS place, regexp_replace(file_path, '^file:/+', '/') AS named, pos FROM {read})"
