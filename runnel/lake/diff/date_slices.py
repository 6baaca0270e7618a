"""The slices of a table that lie in some days, as its files tell. Only reads."""

from typing import TYPE_CHECKING, Any

from pyiceberg.types import DateType

from runnel.errors import RunnelError
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_connection import connect, told
from runnel.lake.scan.duckdb_types import Unscannable, quoted
from runnel.lake.scan.scan_sql import rows_sql
from runnel.plan.date_range import Dated, Days
from runnel.plan.slices import union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.store import Store

_MOST = 10_000  # keys that are worth to be listed


def dated(store: "Store", location: str, by: "Sequence[str]", days: Days) -> Dated | None:
    """Return the slices of a version in some days; None where not exactly one column of `by` is a date."""
    metadata = load(store, location)
    known = {field.name.lower(): field for field in metadata.schema().fields}
    fields = [known.get(name.strip("`").lower()) for name in by]
    dates = [field.name for field in fields if field is not None and isinstance(field.field_type, DateType)]
    if len(dates) != 1:
        return None
    names = [quoted(field.name) for field in fields if field is not None]
    inside = f"{quoted(dates[0])} BETWEEN DATE '{days.first}' AND DATE '{days.last}'"
    try:
        rows = rows_sql(store, metadata)
        keys = _asked(f"SELECT DISTINCT {', '.join(names)} FROM ({rows}) WHERE {inside} LIMIT {_MOST + 1}")
        if len(keys) <= _MOST:
            return Dated(dates[0], len(keys), union([keys]))
        number = f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(names)} FROM ({rows}) WHERE {inside})"
        return Dated(dates[0], _asked(number)[0][0])
    except (Unscannable, RunnelError):
        return Dated(dates[0])  # numbers for people: the run finds the keys itself


def _asked(sql: str) -> list[tuple[Any, ...]]:
    with told(), connect() as connection:
        return connection.execute(sql).fetchall()
