"""Find the slices of a table that lie in a range of days, by reading its files."""

from typing import TYPE_CHECKING, Any

from pyiceberg.types import DateType

from runnel.errors import RunnelError
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import DuckdbScanError, quote_identifier
from runnel.lake.scan.scan_sql import rows_sql
from runnel.model.date_range import DateRange, DateSlices
from runnel.model.slice_key import union_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.store import Store

_MAX_KEYS = 10_000  # more slice keys than this are only counted


def find_date_slices(
    store: "Store", location: str, slice_columns: "Sequence[str]", days: DateRange
) -> DateSlices | None:
    """Return the slices of a version in a range of days; None unless exactly one of `slice_columns` is a date."""
    metadata = load_metadata(store, location)
    fields_by_name = {field.name.lower(): field for field in metadata.schema().fields}
    fields = [fields_by_name.get(name.strip("`").lower()) for name in slice_columns]
    dates = [field.name for field in fields if field is not None and isinstance(field.field_type, DateType)]
    if len(dates) != 1:
        return None
    names = [quote_identifier(field.name) for field in fields if field is not None]
    in_range = f"{quote_identifier(dates[0])} BETWEEN DATE '{days.first}' AND DATE '{days.last}'"
    try:
        table_sql = rows_sql(store, metadata)
        keys = _fetch_rows(
            f"SELECT DISTINCT {', '.join(names)} FROM ({table_sql}) WHERE {in_range} LIMIT {_MAX_KEYS + 1}"
        )
        if len(keys) <= _MAX_KEYS:
            return DateSlices(dates[0], len(keys), union_keys([keys]))
        count_sql = f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(names)} FROM ({table_sql}) WHERE {in_range})"
        return DateSlices(dates[0], _fetch_rows(count_sql)[0][0])
    except (DuckdbScanError, RunnelError):
        return DateSlices(dates[0])  # the count is only shown to users: the run finds the keys itself


def _fetch_rows(sql: str) -> list[tuple[Any, ...]]:
    with translate_duckdb_errors(), connect_duckdb() as connection:
        return connection.execute(sql).fetchall()
