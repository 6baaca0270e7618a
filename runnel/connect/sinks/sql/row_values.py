"""Convert rows to tuples of values that database drivers accept."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ConvertValue = Callable[[Any], Any]


def convert_batches(rows: "pa.RecordBatchReader", convert_value: ConvertValue) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of each batch; `convert_value` turns each value into what the driver accepts."""
    import pyarrow as pa

    for batch in rows:
        columns = []
        for column in batch.columns:
            values = column.to_pylist()
            is_plain = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
            columns.append(
                values if is_plain or pa.types.is_floating(column.type) else [convert_value(item) for item in values]
            )
        yield list(zip(*columns, strict=True))


def to_sqlite_value(value: Any) -> Any:
    """Return a value as SQLite stores it: times in ISO form, decimals as text.

    >>> to_sqlite_value(Decimal("5.00")), to_sqlite_value(date(2026, 1, 2)), to_sqlite_value(True)
    ('5.00', '2026-01-02', 1)
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ") if value.tzinfo else value.isoformat(" ")
    return value.isoformat() if isinstance(value, date | time) else value


def to_mysql_value(value: Any) -> Any:
    """Return a value as MySQL stores it: timestamps with a time zone in UTC."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def join_placeholders(columns: Sequence[object], placeholder: str) -> str:
    """Return one placeholder for each column.

    >>> join_placeholders("ab", "?")
    '?, ?'
    """
    return ", ".join([placeholder] * len(columns))
