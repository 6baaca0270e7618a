"""From text to values: which texts are a number, a date, a time; as SQL for DuckDB.

Two strengths. A *guess* takes a type for a column whose type nobody said, so it takes only texts that come back the
same: `007` stays text. A *rule* reads text into a type that somebody chose, and takes every text that loses nothing:
`007` is 7, but `1.5` is no long and `1.005` no decimal(12,2). Pure: nothing is executed here.
"""

from dataclasses import dataclass

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from runnel.lake.scan.duckdb_types import duckdb_type, literal

_CLOCK = r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_ZONE = r"(Z|[-+]\d{2}(:?\d{2})?)?"
_DAY = r"\d{4}-\d{2}-\d{2}"
_FLOAT = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
# A whole part of at most 15 digits: more would lose digits in a double.
_GUESSED_FLOAT = r"[-+]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?"
_NOT_FINITE = "('nan', 'inf', '-inf', '+inf', 'infinity', '-infinity')"
ANY_TEXT = ("boolean", "long", "large", "double", "date", "timestamp")
NUMBERS = ("long", "large", "double")
STRINGS = ("date", "timestamp")


@dataclass(frozen=True)
class Writing:
    """How a file writes numbers and times, where that is not the usual way. Formats are those of strptime."""

    decimal: str = "."
    date: str | None = None
    timestamp: str | None = None

    def number(self, text: str) -> str:
        """Return the SQL of a text with the usual point; what has a point already is no number then."""
        return text if self.decimal == "." else f"translate({text}, {literal('.' + self.decimal)}, 'x.')"


USUAL = Writing()


@dataclass(frozen=True)
class Try:
    """One way to store a column, as SQL.

    The value; what is null where there is none; whether it is one (None: always).
    """

    kind: IcebergType
    value: str
    present: str
    valid: str | None = None

    @property
    def bad(self) -> str | None:
        """Return the SQL of whether there is something that is no such value."""
        return f"({self.present} IS NOT NULL AND NOT coalesce({self.valid}, false))" if self.valid else None


def guess(text: str, name: str, writing: Writing = USUAL) -> Try:
    """Return a guess at the type of a column of unknown texts."""
    filled = f"nullif({text}, '')"
    if (name == "date" and writing.date) or (name == "timestamp" and writing.timestamp):
        return _formatted(DateType() if name == "date" else TimestamptzType(), filled, writing)
    if name == "double":
        filled = writing.number(filled)
    if name == "boolean":
        return Try(BooleanType(), f"lower({filled}) = 'true'", filled, f"lower({filled}) IN ('true', 'false')")
    if name == "long":
        return _same_try(LongType(), filled)
    if name == "large":
        return _same_try(DecimalType(38, 0), filled)
    if name == "double":
        value = f"TRY_CAST({filled} AS DOUBLE)"
        return Try(DoubleType(), value, filled, f"({_matches(filled, _GUESSED_FLOAT)} AND {value} IS NOT NULL)")
    if name == "date":
        value, valid = _same(filled, "DATE")
        return Try(DateType(), value, filled, f"(length({filled}) = 10 AND {valid})")
    value = f"TRY_CAST({filled} AS TIMESTAMPTZ)"
    shape = _matches(filled, f"{_DAY}([T ]{_CLOCK}{_ZONE})?")
    return Try(TimestamptzType(), value, filled, f"({shape} AND {value} IS NOT NULL)")


def rule(text: str, kind: IcebergType, writing: Writing = USUAL) -> Try | None:
    """Return how to read text into a type; None where text can't be: arrays, structs, UUIDs."""
    if isinstance(kind, StringType):
        return Try(kind, text, text)
    if not kind.is_primitive or isinstance(kind, (UUIDType, FixedType)):
        return None
    filled = f"nullif({text}, '')"
    if isinstance(kind, BooleanType):
        word = f"lower(trim({filled}))"
        return Try(kind, f"{word} IN ('true', 't', '1')", filled, f"{word} IN ('true', 'false', 't', 'f', '1', '0')")
    if isinstance(kind, BinaryType):
        return Try(kind, f"TRY(from_base64({filled}))", filled, f"TRY(from_base64({filled})) IS NOT NULL")
    if (isinstance(kind, DateType) and writing.date) or (
        isinstance(kind, (TimestampType, TimestamptzType)) and writing.timestamp
    ):
        return _formatted(kind, filled, writing)
    if isinstance(kind, (FloatType, DoubleType, DecimalType)):
        filled = writing.number(filled)
    stored = duckdb_type(kind)
    value, same = _same(filled, stored)
    shape = _shape(filled, kind)
    read = f"({shape} AND {value} IS NOT NULL)" if shape else f"{value} IS NOT NULL"
    exact = isinstance(kind, (IntegerType, LongType))  # the usual form is recognised without a regular expression
    return Try(kind, value, filled, f"({same} OR {read})" if exact else read)


def _formatted(kind: IcebergType, filled: str, writing: Writing) -> Try:
    """Return how to read a time that is written in the way of the file."""
    form = writing.date if isinstance(kind, DateType) else writing.timestamp
    value = f"CAST(try_strptime(trim({filled}), {literal(form or '')}) AS {duckdb_type(kind)})"
    return Try(kind, value, filled, f"{value} IS NOT NULL")


def _shape(text: str, kind: IcebergType) -> str | None:
    """Return which texts may be read as a type; DuckDB's casts alone round and accept too much."""
    if isinstance(kind, (IntegerType, LongType)):
        return _matches(text, r"\s*[-+]?\d+\s*")
    if isinstance(kind, (FloatType, DoubleType)):
        return f"({_matches(text, _FLOAT)} OR lower(trim({text})) IN {_NOT_FINITE})"
    if isinstance(kind, DecimalType):
        digits = f"{{0,{kind.scale}}}"
        return _matches(text, rf"\s*[-+]?(\d+(\.\d{digits}0*)?|\.\d{digits}0*)\s*")
    if isinstance(kind, DateType):
        return _matches(text, r"\s*\d{4}-\d{1,2}-\d{1,2}\s*")
    if isinstance(kind, TimestamptzType):
        return _matches(text, rf"\s*{_DAY}([T ]{_CLOCK}\s?{_ZONE})?\s*")
    if isinstance(kind, TimestampType):
        return _matches(text, rf"\s*{_DAY}([T ]{_CLOCK})?\s*")
    if isinstance(kind, TimeType):
        return _matches(text, rf"\s*{_CLOCK}\s*")
    return None


def _same_try(kind: IcebergType, filled: str) -> Try:
    value, valid = _same(filled, duckdb_type(kind))
    return Try(kind, value, filled, valid)


def _same(text: str, stored: str) -> tuple[str, str]:
    """Return the SQL of a value, and of whether it is written back as the same text."""
    value = f"TRY_CAST({text} AS {stored})"
    return value, f"CAST({value} AS VARCHAR) = {text}"


def _matches(text: str, pattern: str) -> str:
    return f"regexp_full_match({text}, '{pattern}')"
