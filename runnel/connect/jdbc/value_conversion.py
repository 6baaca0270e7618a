"""Convert the values of a batch to the types of their columns, and find rows whose values can't be converted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connect.load.quarantined_row import QuarantinedRow

if TYPE_CHECKING:
    from runnel.connect.jdbc.database import Batch, DatabaseColumn

_DAY_MICROSECONDS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # the years 1 to 9999
_INFINITIES = {2_147_483_647, -2_147_483_648, 2**63 - 1, -(2**63)}
_EPOCH_DAYS = 10_957  # between the epoch of PostgreSQL, 2000, and the Unix epoch
_MAX_RAW_LENGTH = 10_000
_MAX_EXACT_DIGITS = 75  # digits
_BOOLEANS: dict[Any, bool | None] = {None: None, 0: False, 1: True}
_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}


@dataclass
class ConvertedBatch:
    """Converted rows, and rows that could not be converted."""

    rows: pa.Table
    bad: list[QuarantinedRow] = field(default_factory=list)


def convert_batch(batch: "Batch", columns: Sequence["DatabaseColumn"], name: str) -> ConvertedBatch:
    """Convert a batch to the types of its columns; `name` is the recorded origin of its bad rows."""
    arrays: list[Any] = []
    reasons_by_row: dict[int, list[str]] = {}
    raw_columns = batch.columns if isinstance(batch, pa.RecordBatch) else zip(*batch, strict=True)
    for column, raw in zip(columns, raw_columns, strict=True):
        kind = parse_arrow_type(column.arrow_type)
        values, bad = (
            convert_arrow_values(raw, kind)
            if isinstance(raw, pa.Array)
            else convert_python_values(cast(Sequence[Any], raw), kind)
        )
        arrays.append(values)
        for row, reason in bad.items():
            reasons_by_row.setdefault(row, []).append(f"column `{column.name}`: {reason}")
    rows = pa.table(arrays, schema=arrow_schema(columns))
    if not reasons_by_row:
        return ConvertedBatch(rows)
    good_rows = [row for row in range(rows.num_rows) if row not in reasons_by_row]
    quarantined_at = datetime.now(UTC)
    bad_rows = [
        QuarantinedRow(_row_json(rows, columns, row), "; ".join(reasons), name, "", quarantined_at)
        for row, reasons in sorted(reasons_by_row.items())
    ]
    return ConvertedBatch(rows.take(pa.array(good_rows, pa.int64())), bad_rows)


def arrow_schema(columns: Sequence["DatabaseColumn"]) -> pa.Schema:
    """Return the Arrow schema of the rows."""
    return pa.schema([pa.field(column.name, parse_arrow_type(column.arrow_type)) for column in columns])


def parse_arrow_type(name: str) -> pa.DataType:
    """Return an Arrow type by its name.

    >>> parse_arrow_type("decimal(12,2)"), parse_arrow_type("list<int32>")
    (Decimal128Type(decimal128(12, 2)), ListType(list<item: int32>))
    """
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if name.startswith("list<"):
        return pa.list_(parse_arrow_type(name[5:-1]))
    return _TYPES[name]


def convert_arrow_values(values: Any, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Convert Arrow values to a type: null if one can't be converted, with the reason by its position."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return _convert_times(values, kind)
    if values.type == kind:
        return values, {}
    if pa.types.is_decimal(kind) and pa.types.is_int64(values.type):
        integers = values.cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(kind, len(integers), integers.buffers(), offset=integers.offset), {}
    try:
        return _convert_decimals(values, kind) if pa.types.is_decimal(kind) else values.cast(kind), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _convert_one_by_one(values.to_pylist(), values.type, kind)


def convert_python_values(values: Sequence[Any], kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Convert Python values to a type: null if one can't be converted, with the reason by its position."""
    try:
        if pa.types.is_boolean(kind):
            return pa.array([_BOOLEANS[value] for value in values], kind), {}
        if not pa.types.is_string(kind) and any(isinstance(value, str) for value in values):
            return convert_arrow_values(pa.array(values, pa.string()), kind)
        return pa.array(values, kind), {}
    except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError):
        return _convert_one_by_one(values, None, kind)


def _convert_one_by_one(
    values: Sequence[Any], source: pa.DataType | None, kind: pa.DataType
) -> tuple[Any, dict[int, str]]:
    converted: list[Any] = []
    bad: dict[int, str] = {}
    for position, value in enumerate(values):
        try:
            converted.append(_convert_value(value, source, kind))
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError, KeyError):
            converted.append(None)
            bad[position] = f"{_quote_value(value)} does not fit {_type_name(kind)}"
    return pa.array(converted, kind), bad


def _convert_value(value: Any, source: pa.DataType | None, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return _BOOLEANS[value]
    if pa.types.is_decimal(kind):
        value, source = Decimal(str(value)), None
    array = pa.array([value], source if source is not None else kind)
    return cast(Any, array.cast(kind))[0].as_py()


def _convert_decimals(values: Any, kind: pa.DataType) -> Any:
    """Convert texts to decimals by way of decimal256: Arrow's direct cast silently overflows."""
    scale = cast(pa.Decimal128Type, kind).scale
    texts = values.cast(pa.string())
    longest: Any = pc.max(pc.utf8_length(texts)).as_py() or 0
    if longest > _MAX_EXACT_DIGITS - scale or pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("one by one")
    return texts.cast(pa.decimal256(76, scale)).cast(kind)


def _convert_times(values: Any, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Convert dates or times; those outside the years 1 to 9999, such as `infinity`, are bad values."""
    if pa.types.is_string(values.type):
        try:
            return _convert_times(values.cast(kind), kind)
        except pa.ArrowInvalid:
            return _convert_one_by_one(values.to_pylist(), values.type, kind)
    if values.type != kind:
        values = values.cast(kind)
    is_date = pa.types.is_date32(kind)
    numbers = values.cast(pa.int32() if is_date else pa.int64())
    size = 1 if is_date else _DAY_MICROSECONDS
    low, high = _FIRST_DAY * size, (_LAST_DAY + 1) * size - 1
    extremes: Any = pc.min_max(numbers).as_py()
    if extremes["min"] is None or (extremes["min"] >= low and extremes["max"] <= high):
        return values, {}
    outside: Any = pc.call_function("or", [pc.less(numbers, pa.scalar(low)), pc.greater(numbers, pa.scalar(high))])
    outside = outside.fill_null(False)
    bad = {}
    for position in pc.indices_nonzero(outside).to_pylist():
        bad[position] = f"{_describe_outside_time(numbers[position].as_py(), is_date)} is not in the years 1 to 9999"
    return pc.if_else(outside, pa.scalar(None, kind), values), bad


def _describe_outside_time(number: int, is_date: bool) -> str:
    width, epoch = (32, _EPOCH_DAYS) if is_date else (64, _EPOCH_DAYS * _DAY_MICROSECONDS)
    raw = (number - epoch + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)
    if raw in _INFINITIES:
        return "infinity" if raw > 0 else "-infinity"
    return "a date" if is_date else "a time"


def _row_json(rows: pa.Table, columns: Sequence["DatabaseColumn"], row: int) -> str:
    """Return a row as JSON; values that could not be converted are null, the reason names them."""
    values = rows.slice(row, 1).to_pylist()[0]
    return json.dumps({column.name: values[column.name] for column in columns}, default=str)[:_MAX_RAW_LENGTH]


def _quote_value(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _type_name(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else str(kind)
