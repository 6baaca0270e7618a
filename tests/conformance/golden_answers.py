"""Write an answer as Spark's golden files do, and compare the two. Pure."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

_SPREAD = re.compile(r"\b(std|stddev|var|variance)(_\w+)?\(", re.IGNORECASE)
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.null(): "void",
}


@dataclass(frozen=True)
class Answer:
    """An answer in the words of a golden file: names, types, and rows of cells."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def digits(self) -> list[int | None]:
        """To how many digits each column is exact, None if to all.

        Sums of doubles depend on the order of addition, within Spark as well; for spreads there are several algorithms.
        """
        spread = [6 if _SPREAD.search(name) else 9 for name in self.names]
        return [
            digits if kind in ("float", "double") else None for digits, kind in zip(spread, self.types, strict=True)
        ]

    @property
    def schema(self) -> str:
        """The columns as Spark writes them."""
        return f"struct<{','.join(f'{n}:{t}' for n, t in zip(self.names, self.types, strict=True))}>"


def answer(table: pa.Table) -> Answer:
    """Return an answer as a golden file writes it."""
    columns = [[_shown(value, field.type) for value in _values(table[i])] for i, field in enumerate(table.schema)]
    rows = tuple(zip(*columns, strict=True)) if columns else ()
    return Answer(tuple(table.column_names), tuple(_type_name(field.type) for field in table.schema), rows)


def _values(column: pa.ChunkedArray) -> list[object]:
    """Return the values of a column; Python has no dates beyond the year 9999."""
    if column.type != pa.date32():
        return list(column.to_pylist())
    days = column.cast(pa.int32()).to_pylist()
    return [None if day is None else _day(str(np.datetime64(day, "D"))) for day in days]


def _day(day: str) -> str:
    """Return a date as Spark writes it: a plus stands before more than four digits of a year."""
    return f"+{day}" if len(day) > len("0001-01-01") and day[0] != "-" else day


def difference(ours: Answer, schema: str, output: str, keys: Sequence[int] | None) -> str | None:
    """Return in what an answer differs from a golden one: `names`, `types`, `rows`, `order`, or None.

    `keys` are the columns by which the answer is ordered, None if the order is free.
    """
    if ours.schema != schema:
        types = ",".join(f".*:{re.escape(kind)}" for kind in ours.types)
        return "names" if re.fullmatch(f"struct<{types}>", schema, re.DOTALL) else "types"
    # A cell may hold a newline: both are cut at each.
    mine = "\n".join("\t".join(row) for row in ours.rows).rstrip().split("\n")
    if mine == output.split("\n"):
        return None
    own = [line.split("\t") for line in mine]
    golden = [line.split("\t") for line in output.split("\n")]
    return compare_rows(own, golden, keys, ours.digits)


def compare_rows(
    mine: list[list[str]], theirs: list[list[str]], keys: Sequence[int] | None, digits: Sequence[int | None]
) -> str | None:
    """Return whether rows differ in their cells or in their order; `digits` tells how exact each column is."""
    own, golden = [_rounded(row, digits) for row in mine], [_rounded(row, digits) for row in theirs]
    if sorted(own) != sorted(golden):
        return "rows"
    whole = keys and all(len(row) == len(digits) for row in (*own, *golden))
    if keys and whole and [[row[key] for key in keys] for row in own] != [[row[key] for key in keys] for row in golden]:
        return "order"
    return None


def _rounded(row: list[str], digits: Sequence[int | None]) -> list[str]:
    if len(row) != len(digits):
        return row
    return [_nearly(cell, exact) if exact else cell for cell, exact in zip(row, digits, strict=True)]


def _nearly(cell: str, digits: int) -> str:
    try:
        return f"{float(cell):.{digits}g}"
    except ValueError:
        return cell


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type_name(kind.key_type)},{_type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{_type_name(f.type)}' for f in kind)}>"
    return _NAMES[kind]


def _shown(value: object, kind: pa.DataType, *, nested: bool = False) -> str:
    if value is None:
        return "null" if nested else "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _double(value, single=kind == pa.float32())
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        whole = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
        return f"{whole}.{value.microsecond:06}".rstrip("0") if value.microsecond else whole
    if isinstance(value, date):
        return value.isoformat()
    if pa.types.is_list(kind) and isinstance(value, list):
        return f"[{','.join(_shown(item, kind.value_type, nested=True) for item in value)}]"
    if pa.types.is_map(kind) and isinstance(value, list):
        pairs = (f"{_shown(k, kind.key_type, nested=True)}:{_shown(v, kind.item_type, nested=True)}" for k, v in value)
        return f"{{{','.join(sorted(pairs))}}}"
    if isinstance(value, dict):
        fields = (f'"{f.name}":{_shown(value[f.name], f.type, nested=True)}' for f in kind)
        return f"{{{','.join(fields)}}}"
    return f'"{value}"' if nested and isinstance(value, str) else str(value)


def _double(value: float, *, single: bool) -> str:
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if single:
        digits = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=1)
    else:
        digits = f"{Decimal(repr(value)):e}"
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e7:
        plain = f"{Decimal(digits):f}"
        whole, _, fraction = plain.partition(".")
        return f"{whole}.{fraction.rstrip('0') or '0'}"
    mantissa, _, exponent = digits.lower().partition("e")
    mantissa = mantissa.rstrip("0") if "." in mantissa else mantissa + "."
    return f"{mantissa}{'0' if mantissa.endswith('.') else ''}E{int(exponent)}"
