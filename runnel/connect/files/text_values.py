"""Convert text to numbers, dates and times, as SQL for DuckDB.

There are two levels of strictness. `guess_conversion` is for a column whose type nobody declared, and accepts only
texts that survive the round trip: `007` stays text. `build_conversion` is for a declared type, and accepts every text
that loses nothing: `007` is 7, but `1.5` is not a long and `1.005` not a decimal(12,2). Pure: nothing is executed here.
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

from runnel.declare.options.datetime_patterns import EPOCHS, has_short_year, to_shape, to_strptime
from runnel.lake.scan.duckdb_types import quote_literal, to_duckdb_type

_CLOCK = r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"  # cut to microseconds
_ZONE = r"(Z|[-+]\d{2}(:?\d{2})?)?"
_DAY = r"\d{4}-\d{2}-\d{2}"
_FLOAT = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
# A whole part of at most 15 digits: more would lose digits in a double.
_GUESSED_FLOAT = r"[-+]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?"
_ZONED_CLOCK = r":\d{2}(\.\d+)?\s?(Z|[-+]\d{2}(:?\d{2})?)\s*$"
_YEAR_2100 = 4_102_444_800_000_000  # in microseconds since 1970
_NOT_FINITE = "('nan', 'inf', '-inf', '+inf', 'infinity', '-infinity')"
TEXT_GUESSES = ("boolean", "long", "large", "double", "date", "timestamp")
NUMBER_GUESSES = ("long", "large", "double")
STRING_GUESSES = ("date", "timestamp")


@dataclass(frozen=True)
class TextFormat:
    """How a file writes numbers and times, if not in the default way. `date` and `timestamp` are patterns.

    `timestamp` may be `epoch`, `epoch_ms` or `epoch_us`. `timezone` is that of timestamps that are written without one.
    """

    decimal: str = "."
    date: str | None = None
    timestamp: str | None = None
    thousands: str | None = None
    timezone: str | None = None

    @property
    def is_epoch(self) -> bool:
        """Tell whether timestamps are written as numbers."""
        return self.timestamp in EPOCHS

    def explain_epoch(self, text: str) -> str:
        """Return why a number is no time, with the unit that makes it a time of our days; empty for other texts.

        >>> TextFormat(timestamp="epoch").explain_epoch("1735689600000")
        ': out of range for epoch; it looks like timestamp_format="epoch_ms"'
        """
        if not self.is_epoch or not text.strip().lstrip("-").isdigit():
            return ""
        units = [unit for unit, microseconds in EPOCHS.items() if 0 < int(text) * microseconds < _YEAR_2100]
        hint = f'; it looks like timestamp_format="{units[0]}"' if units and self.timestamp not in units else ""
        return f": out of range for {self.timestamp}{hint}"

    def number_sql(self, text: str) -> str:
        """Return SQL that replaces the decimal separator by a point; a text with a point is not a number then.

        Thousands separators are removed if they separate groups of three digits.
        """
        ungrouped = text if self.decimal == "." else f"translate({text}, {quote_literal('.' + self.decimal)}, 'x.')"
        return self._ungroup_sql(text, rf"([{self.decimal}]\d*)?", ungrouped)

    def integer_sql(self, text: str) -> str:
        """Return SQL that removes the thousands separators of a whole number."""
        return self._ungroup_sql(text, "", text)

    def _ungroup_sql(self, text: str, fraction: str, otherwise: str) -> str:
        if self.thousands is None:
            return otherwise
        if self.thousands == " ":  # typography has blanks of its own
            text = f"translate({text}, '\u00a0\u202f', '  ')"
        pattern = quote_literal(rf"\s*[-+]?\d{{1,3}}([{self.thousands}]\d{{3}})+{fraction}\s*")
        separators = quote_literal(self.decimal + self.thousands)
        is_grouped = f"regexp_full_match({text}, {pattern})"
        return f"CASE WHEN {is_grouped} THEN translate({text}, {separators}, '.') ELSE {otherwise} END"

    def local_time_sql(self, timestamp: str) -> str:
        """Return SQL of the moment that a timestamp without a time zone means.

        A time that the clocks show twice is the earlier one, as in Spark; a time that they skip is an hour later.
        """
        if not self.timezone:
            return timestamp
        zone = quote_literal(self.timezone)
        # With the offset of three hours before; valid if it is the offset of this time, too.
        earlier = f"(timezone({zone}, {timestamp} - INTERVAL 3 HOUR) + INTERVAL 3 HOUR)"
        later = f"timezone({zone}, {timestamp})"
        return f"CASE WHEN timezone({zone}, {earlier}) = {timestamp} THEN {earlier} ELSE {later} END"

    def moment_sql(self, text: str) -> str:
        """Return SQL of the moment that a text in ISO form means; null if it isn't one."""
        zoned = f"TRY_CAST({text} AS TIMESTAMPTZ)"
        if not self.timezone:
            return zoned
        has_zone = f"regexp_matches({text}, '{_ZONED_CLOCK}')"
        return f"CASE WHEN {has_zone} THEN {zoned} ELSE {self.local_time_sql(f'TRY_CAST({text} AS TIMESTAMP)')} END"


DEFAULT_TEXT_FORMAT = TextFormat()


@dataclass(frozen=True)
class ColumnConversion:
    """A way to store a column as a type, in SQL.

    `value` is the converted value, `present` is null if there is no value, `valid` tells whether the value can be
    converted (None: always).
    """

    kind: IcebergType
    value: str
    present: str
    valid: str | None = None

    @property
    def bad_sql(self) -> str | None:
        """Return the SQL condition that holds for a value that can't be converted; None if all can."""
        return f"({self.present} IS NOT NULL AND NOT coalesce({self.valid}, false))" if self.valid else None


def guess_conversion(text: str, name: str, text_format: TextFormat = DEFAULT_TEXT_FORMAT) -> ColumnConversion:
    """Return the strict conversion for a guessed type of a text column."""
    filled_text = f"nullif({text}, '')"
    has_time_format = text_format.timestamp and not text_format.is_epoch  # a number may mean anything
    if (name == "date" and text_format.date) or (name == "timestamp" and has_time_format):
        return _convert_formatted_time(DateType() if name == "date" else TimestamptzType(), filled_text, text_format)
    if name == "double":
        filled_text = text_format.number_sql(filled_text)
    if name in ("long", "large"):
        filled_text = text_format.integer_sql(filled_text)
    if name == "boolean":
        return ColumnConversion(
            BooleanType(), f"lower({filled_text}) = 'true'", filled_text, f"lower({filled_text}) IN ('true', 'false')"
        )
    if name == "long":
        return _make_exact_conversion(LongType(), filled_text)
    if name == "large":
        return _make_exact_conversion(DecimalType(38, 0), filled_text)
    if name == "double":
        value = f"TRY_CAST({filled_text} AS DOUBLE)"
        return ColumnConversion(
            DoubleType(), value, filled_text, f"({_build_match(filled_text, _GUESSED_FLOAT)} AND {value} IS NOT NULL)"
        )
    if name == "date":
        value, valid = _build_round_trip(filled_text, "DATE")
        return ColumnConversion(DateType(), value, filled_text, f"(length({filled_text}) = 10 AND {valid})")
    value = text_format.moment_sql(filled_text)
    shape_check = _build_match(filled_text, f"{_DAY}([T ]{_CLOCK}{_ZONE})?")
    return ColumnConversion(TimestamptzType(), value, filled_text, f"({shape_check} AND {value} IS NOT NULL)")


def build_conversion(
    text: str, kind: IcebergType, text_format: TextFormat = DEFAULT_TEXT_FORMAT
) -> ColumnConversion | None:
    """Return how to convert text to a type; None if that is not possible: arrays, structs, UUIDs."""
    if isinstance(kind, StringType):
        return ColumnConversion(kind, text, text)
    if not kind.is_primitive or isinstance(kind, (UUIDType, FixedType)):
        return None
    filled_text = f"nullif({text}, '')"
    if isinstance(kind, BooleanType):
        lower_text = f"lower(trim({filled_text}))"
        return ColumnConversion(
            kind,
            f"{lower_text} IN ('true', 't', '1', 'yes', 'y')",
            filled_text,
            f"{lower_text} IN ('true', 'false', 't', 'f', '1', '0', 'yes', 'no', 'y', 'n')",
        )
    if isinstance(kind, BinaryType):
        return ColumnConversion(
            kind, f"TRY(from_base64({filled_text}))", filled_text, f"TRY(from_base64({filled_text})) IS NOT NULL"
        )
    if (isinstance(kind, DateType) and text_format.date) or (
        isinstance(kind, (TimestampType, TimestamptzType)) and text_format.timestamp
    ):
        return _convert_formatted_time(kind, filled_text, text_format)
    if isinstance(kind, (FloatType, DoubleType, DecimalType)):
        filled_text = text_format.number_sql(filled_text)
    if isinstance(kind, (IntegerType, LongType)):
        filled_text = text_format.integer_sql(filled_text)
    value, round_trips = _build_round_trip(filled_text, to_duckdb_type(kind))
    if isinstance(kind, TimestamptzType):
        value = text_format.moment_sql(filled_text)
    shape_check = _build_shape_check(filled_text, kind)
    is_readable = f"({shape_check} AND {value} IS NOT NULL)" if shape_check else f"{value} IS NOT NULL"
    is_integer = isinstance(kind, (IntegerType, LongType))  # the common form is checked without a regular expression
    return ColumnConversion(
        kind, value, filled_text, f"({round_trips} OR {is_readable})" if is_integer else is_readable
    )


def _convert_formatted_time(kind: IcebergType, filled_text: str, text_format: TextFormat) -> ColumnConversion:
    """Return how to convert a date or time that is written in the file's own format."""
    if text_format.is_epoch and not isinstance(kind, DateType):
        return _convert_epoch(kind, filled_text, EPOCHS[text_format.timestamp or ""])
    pattern = (text_format.date if isinstance(kind, DateType) else text_format.timestamp) or ""
    time_format = to_strptime(pattern) or pattern
    value = f"try_strptime(trim({filled_text}), {quote_literal(time_format)})"
    if has_short_year(pattern):  # Spark has no years before 2000 here, strptime has
        value = f"{value} + CASE WHEN year({value}) < 2000 THEN INTERVAL 100 YEAR ELSE INTERVAL 0 YEAR END"
    if isinstance(kind, TimestamptzType) and "%z" not in time_format.lower():
        value = text_format.local_time_sql(value)
    value = f"CAST({value} AS {to_duckdb_type(kind)})"
    shape_check = f"regexp_full_match(trim({filled_text}), {quote_literal(to_shape(pattern))}, 's')"
    return ColumnConversion(kind, value, filled_text, f"({shape_check} AND {value} IS NOT NULL)")


def _convert_epoch(kind: IcebergType, filled_text: str, microseconds: int) -> ColumnConversion:
    """Return how to convert a number of units since 1970; `microseconds` are those of a unit."""
    decimals = len(str(microseconds)) - 1
    fraction = rf"(\.\d{{0,{decimals}}}0*)?" if decimals else ""
    pattern = rf"\s*[-+]?\d{{1,18}}{fraction}\s*"
    number = f"TRY_CAST({filled_text} AS DECIMAL(38,{decimals}))"
    value = f"CAST(TRY(make_timestamp(TRY_CAST({number} * {microseconds} AS BIGINT))) AS {to_duckdb_type(kind)})"
    in_range = f"year({value}) BETWEEN 1 AND 9999"
    return ColumnConversion(kind, value, filled_text, f"({_build_match(filled_text, pattern)} AND {in_range})")


def _build_shape_check(text: str, kind: IcebergType) -> str | None:
    """Return SQL that tells which texts may be converted to a type; DuckDB's casts alone round and accept too much."""
    if isinstance(kind, (IntegerType, LongType)):
        return _build_match(text, r"\s*[-+]?\d+\s*")
    if isinstance(kind, (FloatType, DoubleType)):
        return f"({_build_match(text, _FLOAT)} OR lower(trim({text})) IN {_NOT_FINITE})"
    if isinstance(kind, DecimalType):
        digits = f"{{0,{kind.scale}}}"
        return _build_match(text, rf"\s*[-+]?(\d+(\.\d{digits}0*)?|\.\d{digits}0*)\s*")
    if isinstance(kind, DateType):
        return _build_match(text, r"\s*\d{4}-\d{1,2}-\d{1,2}\s*")
    if isinstance(kind, TimestamptzType):
        return _build_match(text, rf"\s*{_DAY}([T ]{_CLOCK}\s?{_ZONE})?\s*")
    if isinstance(kind, TimestampType):
        return _build_match(text, rf"\s*{_DAY}([T ]{_CLOCK})?\s*")
    if isinstance(kind, TimeType):
        return _build_match(text, rf"\s*{_CLOCK}\s*")
    return None


def _make_exact_conversion(kind: IcebergType, filled_text: str) -> ColumnConversion:
    value, valid = _build_round_trip(filled_text, to_duckdb_type(kind))
    return ColumnConversion(kind, value, filled_text, valid)


def _build_round_trip(text: str, stored_type: str) -> tuple[str, str]:
    """Return the SQL of a value, and a condition that the value converts back to the same text."""
    value = f"TRY_CAST({text} AS {stored_type})"
    return value, f"CAST({value} AS VARCHAR) = {text}"


def _build_match(text: str, pattern: str) -> str:
    return f"regexp_full_match({text}, '{pattern}')"
