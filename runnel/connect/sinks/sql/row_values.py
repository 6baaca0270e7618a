"""Databases that are written to row by row: values as the driver takes them."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Value = Callable[[Any], Any]


def tuples(rows: "pa.RecordBatchReader", value: Value) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of each batch; `value` turns each into what the driver takes."""
    import pyarrow as pa

    for batch in rows:
        columns = []
        for column in batch.columns:
            found = column.to_pylist()
            is_plain = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
            columns.append(found if is_plain or pa.types.is_floating(column.type) else [value(one) for one in found])
        yield list(zip(*columns, strict=True))


def text(value: Any) -> Any:
    """Return a value as SQLite keeps it: times in ISO form, decimals as their digits.

    >>> text(Decimal("5.00")), text(date(2026, 1, 2)), text(True)
    ('5.00', '2026-01-02', 1)
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ") if value.tzinfo else value.isoformat(" ")
    return value.isoformat() if isinstance(value, date | time) else value


def utc(value: Any) -> Any:
    """Return a value as MySQL keeps it: moments in UTC."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def marks(columns: Sequence[object], mark: str) -> str:
    """Return placeholders.

    >>> marks("ab", "?")
    '?, ?'
    """
    return ", ".join([mark] * len(columns))
