"""Find how a file writes numbers, dates and times, by trying the formats that people use on its first rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import CSV
from runnel.connect.files.format_reader import FormatReader
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.text_values import TextFormat, build_conversion
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.suggest.suggested_options import Caveat
from runnel.declare.options.datetime_patterns import EPOCHS
from runnel.errors import join_names

if TYPE_CHECKING:
    import duckdb

_SAMPLE_ROWS = 2_000
_NEARLY_ALL = 0.9
_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestamptzType)
_SEPARATORS: tuple[tuple[str, str | None], ...] = (  # of decimals and of thousands; `12,000` fits two of them
    (".", ","),
    (",", None),
    (",", "."),
    (".", " "),
    (",", " "),
    (".", "'"),
)
_LEAST_DOTTED_VALUES = 20  # different ones, so that it is hardly by chance
_DAY_FIRST = ("dd.MM.yyyy", "d.M.yyyy", "dd/MM/yyyy", "d/M/yyyy", "dd-MM-yyyy", "d-M-yyyy")
_MONTH_FIRST = ("MM/dd/yyyy", "M/d/yyyy", "MM-dd-yyyy", "M-d-yyyy")
_OTHER_DATES = ("yyyy/MM/dd", "yyyy.MM.dd", "yyyyMMdd", "dd.MM.yy", "d.M.yy", "dd/MM/yy", "MM/dd/yy", "M/d/yy")
_NAMED_MONTHS = ("dd-MMM-yyyy", "d-MMM-yyyy", "dd MMM yyyy", "d MMM yyyy", "MMM d, yyyy")
_DATES = (*_DAY_FIRST, *_MONTH_FIRST, *_OTHER_DATES, *_NAMED_MONTHS)
_CLOCKS = ("HH:mm:ss", "HH:mm", "H:mm:ss", "H:mm")
_TIMESTAMPS = (
    *EPOCHS,
    *(f"{date} {clock}" for date in _DATES[:11] for clock in _CLOCKS),
    *(f"{date} {clock}" for date in (*_MONTH_FIRST[:2], *_DAY_FIRST[:4]) for clock in ("h:mm:ss a", "h:mm a")),
    "dd.MM.yyyy HH:mm:ss.SSS",
    "yyyyMMdd HHmmss",
    *_DATES,
)


@dataclass(frozen=True)
class _Column:
    """A column of text that should become `kind`; one whose type was inferred counts as a whole."""

    sql_name: str
    kind: IcebergType
    is_declared: bool


@dataclass(frozen=True)
class SuggestedFormats:
    """Options with which more values fit; `is_ambiguous` tells that day and month may be the other way round."""

    options: tuple[tuple[str, str], ...] = ()
    is_ambiguous: bool = False


def suggest_formats(
    con: "duckdb.DuckDBPyConnection",
    reader: FormatReader,
    choices: Sequence[tuple[ColumnChoice, bool]],
    *,
    has_number_options: bool,
) -> SuggestedFormats:
    """Return the options with which more values fit.

    Each choice comes with whether its type was declared. `has_number_options` tells whether the format of the files
    takes `decimal` and `thousands`.
    """
    texts = [(choice, is_declared) for choice, is_declared in choices if choice.file_column.kind is None]
    if not texts:
        return SuggestedFormats()
    current = texts[0][0].file_column.text_format
    source = f"SELECT * FROM ({reader.build_select()}) LIMIT {_SAMPLE_ROWS}"
    trials = _Trials(con, reader, source, current)
    options: list[tuple[str, str]] = []
    if has_number_options and current.thousands is None:
        is_european = isinstance(reader, CsvReader) and reader.options.delimiter == ";"  # since commas are decimals
        separators = sorted(_SEPARATORS, key=lambda pair: is_european and pair[0] == ".")
        formats = [
            replace(current, decimal=decimal, thousands=thousands)
            for decimal, thousands in separators
            if current.decimal in (".", decimal)
        ]
        number_choice = trials.choose(_list_columns(texts, _NUMBERS, DoubleType()), formats)
        if number_choice is not None:
            decimal, thousands = number_choice.text_format.decimal, number_choice.text_format.thousands
            options += [("decimal", decimal)] if decimal != current.decimal else []
            options += [("thousands", thousands)] if thousands else []
    dates, times = _suggest_patterns(trials, texts, current)
    options += [("date_format", dates.text_format.date)] if dates and dates.text_format.date else []
    options += [("timestamp_format", times.text_format.timestamp)] if times and times.text_format.timestamp else []
    is_ambiguous = any(choice is not None and choice.swapped is not None for choice in (dates, times))
    return SuggestedFormats(tuple(options), is_ambiguous)


def find_dot_caveats(
    con: "duckdb.DuckDBPyConnection", request: LoadRequest, reader: FormatReader, choices: Sequence[ColumnChoice]
) -> list[Caveat]:
    """Return a caveat about columns of numbers whose dots may separate thousands, as in German exports.

    That is so if semicolons separate the values, and all numbers with a dot have three digits after it, and those
    without one have no more.
    """
    text_format = request.csv.text_format
    is_read_with_dots = text_format.decimal == "." and text_format.thousands is None
    if request.format != CSV or request.csv.delimiter != ";" or not is_read_with_dots:
        return []
    numbers = [choice for choice in choices if isinstance(choice.conversions[0].kind, _NUMBERS)]
    if not numbers:
        return []
    counts = [expression for choice in numbers for expression in _build_dot_expressions(choice.file_column.sql_name)]
    [facts] = con.execute(f"SELECT {', '.join(counts)} FROM ({reader.build_select()})").fetchall()
    reader.pop_rejected()
    names = [
        choice.name
        for choice, distinct_count, all_fit in zip(numbers, facts[::2], facts[1::2], strict=True)
        if all_fit and distinct_count >= _LEAST_DOTTED_VALUES
    ]
    if not names:
        return []
    condition = f"if the dots of {join_names(names)} separate thousands,"
    return [
        Caveat(
            f'{condition} the file needs --decimal "," --thousands "."',
            f'{condition} add decimal=",", thousands="." to rn.files',
        )
    ]


def _build_dot_expressions(text: str) -> tuple[str, str]:
    """Return SQL of how many different values have dots as between thousands, and of whether all may have them."""
    grouped = rf"regexp_full_match({text}, '[-+]?[1-9]\d{{0,2}}(\.\d{{3}})+')"
    fits = rf"({grouped} OR regexp_full_match({text}, '[-+]?\d{{0,3}}'))"
    return f"count(DISTINCT {text}) FILTER (WHERE {grouped})", f"coalesce(bool_and({fits}), false)"


def _suggest_patterns(
    trials: "_Trials", texts: Sequence[tuple[ColumnChoice, bool]], current: TextFormat
) -> "tuple[_FormatChoice | None, _FormatChoice | None]":
    """Return the formats of dates and of times, which have day and month in the same order if one of them tells it."""
    date_columns = _list_columns(texts, (DateType,), DateType())
    is_date_format_right = current.date is not None and any(
        isinstance(choice.conversions[0].kind, DateType) and not is_declared for choice, is_declared in texts
    )
    date_columns = [] if is_date_format_right else date_columns
    dates = trials.choose(date_columns, [replace(current, date=text) for text in _DATES])
    fitting_names = trials.list_fitting(date_columns, dates.text_format) if dates else ()
    time_columns = [
        column
        for column in _list_columns(texts, _TIMES, TimestamptzType())
        if column.is_declared or column.sql_name not in fitting_names
    ]
    has_declared_time = any(column.is_declared for column in time_columns)
    has_date_format = dates is not None or current.date is not None
    # Without a declared time, digits are rather an id, and dates are no times if there is a format of dates.
    patterns = [
        text
        for text in _TIMESTAMPS
        if has_declared_time or not (text in EPOCHS or (has_date_format and text in _DATES))
    ]
    times = trials.choose(time_columns, [replace(current, timestamp=text) for text in patterns])
    if dates is not None and times is not None and dates.is_month_first != times.is_month_first:
        if dates.swapped is not None and times.swapped is None:
            dates = _FormatChoice(dates.swapped)
        elif times.swapped is not None:
            times = _FormatChoice(times.swapped, times.text_format if dates.swapped else None)
    elif dates is not None and times is not None and (dates.swapped is None or times.swapped is None):
        dates, times = _FormatChoice(dates.text_format), _FormatChoice(times.text_format)
    return dates, times


def _list_columns(
    texts: Sequence[tuple[ColumnChoice, bool]], kinds: tuple[type[IcebergType], ...], otherwise: IcebergType | None
) -> list[_Column]:
    """Return the columns of some types, and those that are text since nothing else fits, as the type `otherwise`."""
    columns = []
    for choice, is_declared in texts:
        kind = choice.conversions[0].kind
        if isinstance(kind, kinds):
            columns.append(_Column(choice.file_column.sql_name, kind, is_declared))
        elif isinstance(kind, StringType) and not is_declared and otherwise is not None and choice.file_column.guesses:
            columns.append(_Column(choice.file_column.sql_name, otherwise, is_declared))
    return columns


@dataclass(frozen=True)
class _FormatChoice:
    """A format that fits; `swapped` is one that fits as well and has day and month the other way round."""

    text_format: TextFormat
    swapped: TextFormat | None = None

    @property
    def is_month_first(self) -> bool:
        return _is_month_first(self.text_format)


class _Trials:
    """Tries formats on the first rows."""

    def __init__(
        self, con: "duckdb.DuckDBPyConnection", reader: FormatReader, source: str, current: TextFormat
    ) -> None:
        self._con, self._reader, self._source, self._current = con, reader, source, current

    def choose(self, columns: Sequence[_Column], formats: Sequence[TextFormat]) -> _FormatChoice | None:
        """Return the first format with which most values fit; None if the current one is as good, or none is good."""
        if not columns or not formats:
            return None
        fits = self._count_fits(columns, [self._current, *formats])
        scores = [
            sum(
                fit if column.is_declared else total * (fit == total)
                for column, total, fit in zip(columns, fits[0], fits_of_format, strict=True)
            )
            for fits_of_format in fits[1:]
        ]
        best = max(scores[1:])
        total = sum(count for column, count in zip(columns, fits[0], strict=True) if column.is_declared)
        if best <= scores[0] or best < _NEARLY_ALL * total:
            return None
        chosen = formats[scores.index(best, 1) - 1]
        if " a" in (chosen.timestamp or ""):  # who writes AM and PM, writes the month first
            return _FormatChoice(chosen)
        swapped = (
            other
            for other, score in zip(formats, scores[1:], strict=True)
            if score == best and _is_month_first(other) != _is_month_first(chosen)
        )
        return _FormatChoice(chosen, next(swapped, None))

    def list_fitting(self, columns: Sequence[_Column], text_format: TextFormat) -> tuple[str, ...]:
        """Return the SQL names of the columns all of whose values fit a format."""
        fits = self._count_fits(columns, [text_format])
        return tuple(
            column.sql_name for column, total, fit in zip(columns, fits[0], fits[1], strict=True) if fit == total
        )

    def _count_fits(self, columns: Sequence[_Column], formats: Sequence[TextFormat]) -> list[list[int]]:
        """Return the number of values of each column, and then for each format how many values of each column fit."""
        expressions = [f"count(nullif({column.sql_name}, ''))" for column in columns]
        for text_format in formats:
            for column in columns:
                conversion = build_conversion(column.sql_name, column.kind, text_format)
                valid = conversion.valid if conversion is not None and conversion.valid else "true"
                expressions.append(f"count_if(nullif({column.sql_name}, '') IS NOT NULL AND coalesce({valid}, false))")
        [counts] = self._con.execute(f"SELECT {', '.join(expressions)} FROM ({self._source})").fetchall()
        self._reader.pop_rejected()
        width = len(columns)
        return [list(counts[start : start + width]) for start in range(0, len(counts), width)]


def _is_month_first(text_format: TextFormat) -> bool:
    pattern = text_format.date or text_format.timestamp or ""
    return pattern.startswith(_MONTH_FIRST)
