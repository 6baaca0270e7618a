"""Give the values of a batch the types of their columns, and find the rows with values that have no such form."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connect.load.quarantine import Aside

if TYPE_CHECKING:
    from runnel.connect.jdbc.database import Batch, Column

_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # the years 1 to 9999
_INFINITIES = {2_147_483_647, -2_147_483_648, 2**63 - 1, -(2**63)}
_EPOCH_DAYS = 10_957  # between the epoch of PostgreSQL, 2000, and that of everyone else
_LONGEST_RAW = 10_000
_LONGEST_EXACT = 75  # digits
_FLAGS: dict[Any, bool | None] = {None: None, 0: False, 1: True}
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
class Sifted:
    """Rows that could be made out, and those that could not."""

    rows: pa.Table
    bad: list[Aside] = field(default_factory=list)


def sift(batch: "Batch", columns: Sequence["Column"], name: str) -> Sifted:
    """Return a batch in the types of its columns; `name` is where its bad rows are said to come from."""
    made: list[Any] = []
    wrong: dict[int, list[str]] = {}
    raws = batch.columns if isinstance(batch, pa.RecordBatch) else zip(*batch, strict=True)
    for column, raw in zip(columns, raws, strict=True):
        kind = arrow(column.type)
        values, bad = fitted(raw, kind) if isinstance(raw, pa.Array) else listed(cast(Sequence[Any], raw), kind)
        made.append(values)
        for row, reason in bad.items():
            wrong.setdefault(row, []).append(f"column `{column.name}`: {reason}")
    rows = pa.table(made, schema=schema_of(columns))
    if not wrong:
        return Sifted(rows)
    keep = [row for row in range(rows.num_rows) if row not in wrong]
    at = datetime.now(UTC)
    asides = [
        Aside(_raw(rows, columns, row), "; ".join(reasons), name, "", at) for row, reasons in sorted(wrong.items())
    ]
    return Sifted(rows.take(pa.array(keep, pa.int64())), asides)


def schema_of(columns: Sequence["Column"]) -> pa.Schema:
    """Return the schema that rows are kept with."""
    return pa.schema([pa.field(column.name, arrow(column.type)) for column in columns])


def arrow(name: str) -> pa.DataType:
    """Return a type of Arrow by its name.

    >>> arrow("decimal(12,2)"), arrow("list<int32>")
    (Decimal128Type(decimal128(12, 2)), ListType(list<item: int32>))
    """
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if name.startswith("list<"):
        return pa.list_(arrow(name[5:-1]))
    return _TYPES[name]


def fitted(values: Any, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Return values in a type, null where one has no such form, and why by its place."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return _times(values, kind)
    if values.type == kind:
        return values, {}
    if pa.types.is_decimal(kind) and pa.types.is_int64(values.type):
        whole = values.cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(kind, len(whole), whole.buffers(), offset=whole.offset), {}
    try:
        return _decimals(values, kind) if pa.types.is_decimal(kind) else values.cast(kind), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _one_by_one(values.to_pylist(), values.type, kind)


def listed(values: Sequence[Any], kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Return Python's values in a type, null where one has no such form, and why by its place."""
    try:
        if pa.types.is_boolean(kind):
            return pa.array([_FLAGS[one] for one in values], kind), {}
        if not pa.types.is_string(kind) and any(isinstance(one, str) for one in values):
            return fitted(pa.array(values, pa.string()), kind)
        return pa.array(values, kind), {}
    except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError):
        return _one_by_one(values, None, kind)


def _one_by_one(values: Sequence[Any], source: pa.DataType | None, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    made: list[Any] = []
    bad: dict[int, str] = {}
    for position, value in enumerate(values):
        try:
            made.append(_one(value, source, kind))
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError, KeyError):
            made.append(None)
            bad[position] = f"{_short(value)} does not fit {_called(kind)}"
    return pa.array(made, kind), bad


def _one(value: Any, source: pa.DataType | None, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return _FLAGS[value]
    if pa.types.is_decimal(kind):
        value, source = Decimal(str(value)), None
    made = pa.array([value], source if source is not None else kind)
    return cast(Any, made.cast(kind))[0].as_py()


def _decimals(values: Any, kind: pa.DataType) -> Any:
    """Return texts as decimals. Arrow's own cast lets what is too long wrap around, so it goes by a longer type."""
    scale = cast(pa.Decimal128Type, kind).scale
    texts = values.cast(pa.string())
    longest: Any = pc.max(pc.utf8_length(texts)).as_py() or 0
    if longest > _LONGEST_EXACT - scale or pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("one by one")
    return texts.cast(pa.decimal256(76, scale)).cast(kind)


def _times(values: Any, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Return dates or times within the years 1 to 9999; `infinity` is none."""
    if pa.types.is_string(values.type):
        try:
            return _times(values.cast(kind), kind)
        except pa.ArrowInvalid:
            return _one_by_one(values.to_pylist(), values.type, kind)
    if values.type != kind:
        values = values.cast(kind)
    is_date = pa.types.is_date32(kind)
    numbers = values.cast(pa.int32() if is_date else pa.int64())
    size = 1 if is_date else _DAY
    low, high = _FIRST_DAY * size, (_LAST_DAY + 1) * size - 1
    found: Any = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= low and found["max"] <= high):
        return values, {}
    outside: Any = pc.call_function("or", [pc.less(numbers, pa.scalar(low)), pc.greater(numbers, pa.scalar(high))])
    outside = outside.fill_null(False)
    bad = {}
    for position in pc.indices_nonzero(outside).to_pylist():
        bad[position] = f"{_outside(numbers[position].as_py(), is_date)} is not in the years 1 to 9999"
    return pc.if_else(outside, pa.scalar(None, kind), values), bad


def _outside(number: int, is_date: bool) -> str:
    width, epoch = (32, _EPOCH_DAYS) if is_date else (64, _EPOCH_DAYS * _DAY)
    raw = (number - epoch + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)
    if raw in _INFINITIES:
        return "infinity" if raw > 0 else "-infinity"
    return "a date" if is_date else "a time"


def _raw(rows: pa.Table, columns: Sequence["Column"], row: int) -> str:
    """Return a row as JSON; what has no form is told by the reason."""
    one = rows.slice(row, 1).to_pylist()[0]
    return json.dumps({column.name: one[column.name] for column in columns}, default=str)[:_LONGEST_RAW]


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _called(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else str(kind)
