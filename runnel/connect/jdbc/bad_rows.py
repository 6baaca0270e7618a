"""Apply a source's `on_bad` policy to database rows that can't be ingested."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.jdbc.database import SourceDatabase
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.errors import RunnelError, plural
from runnel.names import quote_value

if TYPE_CHECKING:
    from runnel.connect.load.quarantined_row import QuarantinedRow

_MAX_SHOWN = 5


def check_bad_rows(inspection: TableInspection, bad: "Sequence[QuarantinedRow]") -> "tuple[QuarantinedRow, ...]":
    """Return bad rows, or raise if the source declares `on_bad="stop"`."""
    if not bad or inspection.source.on_bad != "stop":
        return tuple(bad)
    count = len(bad)
    head = f"{plural(count, 'row')} of {inspection.name} can't be read; nothing was ingested"
    lines = [f"    {bad_row.reason}, in the row {quote_value(bad_row.raw, 120)}" for bad_row in bad[:_MAX_SHOWN]]
    more = [f"    ... and {count - _MAX_SHOWN:,} more"] if count > _MAX_SHOWN else []
    fix = 'correct them in the database, or set them aside with on_bad="quarantine"'
    raise RunnelError("SOURCE_BAD_ROWS", "\n".join([head, *lines, *more]), at=str(inspection.source.place), fix=fix)


def has_unique_key(database: SourceDatabase, inspection: TableInspection) -> bool:
    """Tell whether the database itself guarantees that each key occurs once."""
    return not inspection.key or database.is_unique(inspection.origin, [column.name for column in inspection.key])


def check_key_is_unique(inspection: TableInspection, parts: Sequence[FetchedFile]) -> None:
    """Raise if a key occurs twice: then it does not identify a row."""
    from runnel.lake.scan.duckdb_connection import connect_duckdb
    from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier

    names = [column.name for column in inspection.key]
    files = ", ".join(quote_exact_path(str(part.path)) for part in parts)
    columns = ", ".join(quote_identifier(name) for name in names)
    with connect_duckdb() as con:
        duplicates = con.execute(
            f"SELECT {columns}, count(*) FROM read_parquet([{files}]) GROUP BY {columns} HAVING count(*) > 1 LIMIT 1"
        ).fetchall()
    if duplicates:
        *values, count = duplicates[0]
        key_text = ", ".join(f"{name} = {quote_value(value)}" for name, value in zip(names, values, strict=True))
        what = f"the key of {inspection.name} does not identify its rows: {count:,} have {key_text}"
        fix = "name all the columns that identify a row in key=, or leave key= out"
        raise RunnelError("SOURCE_KEY_TWICE", what, at=str(inspection.source.place), fix=fix)
