"""Find where the table begins in a text file, and how its columns are separated, from the first records."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from runnel.connect.files.csv_text.csv_records import CsvRecord, choose_delimiter, read_records
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions

_RECORDS = 50
_MAX_TITLES = 10
_DELIMITERS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*\Z", re.IGNORECASE)
_DATA = re.compile(
    r"[-+]?\d+[.,]\d+|[-+]?\d+|\d{4}-\d{2}-\d{2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|true|false", re.IGNORECASE
)
_YEAR = re.compile(r"(19|20)\d{2}")  # may well be the name of a column

_Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Layout:
    """A way to read the first records. A greater `score` is better."""

    score: tuple[float, ...]
    options: _Options


def find_layout(file: LocalFile, options: CsvOptions, names: Sequence[str], *, is_text: bool = False) -> _Options:
    """Return `delimiter`, `skip` and `header` as far as the file needs them and the options don't say them.

    `names` are the declared columns, if any. With `is_text` the delimiter is always said.
    """
    default = choose_delimiter(file, options)
    named_delimiter = _read_separator_line(file, options)
    first_skip = () if named_delimiter is None else (("skip", str(options.skip + 1)),)
    options = replace(options, skip=options.skip + len(first_skip))
    if options.delimiter is not None or named_delimiter is not None:
        delimiters: tuple[str, ...] = (options.delimiter or named_delimiter or default,)
    else:
        delimiters = (default, *(delimiter for delimiter in _DELIMITERS if delimiter != default))
    layouts = [_describe_layout(file, options, names, delimiter) for delimiter in delimiters]
    best = max(layouts, key=lambda layout: layout.score)
    delimiter = delimiters[layouts.index(best)]
    if best.score[0] <= 0 and best.score[1] <= 0:
        return ()
    is_said = options.delimiter is not None or (delimiter == default and not is_text)
    layout = dict((*first_skip, *best.options))
    return tuple((layout if is_said else {"delimiter": delimiter, **layout}).items())


def is_data_row(values: Sequence[str]) -> bool:
    """Tell whether the values of a first record are data, not names: numbers, dates or booleans; years may be names.

    >>> is_data_row(["1", "Berlin", "52.5"]), is_data_row(["country", "2020", "2021"]), is_data_row(["id", "name"])
    (True, False, False)
    """
    texts = [value.strip() for value in values]
    return any(_DATA.fullmatch(text) and not _YEAR.fullmatch(text) for text in texts)


def _describe_layout(file: LocalFile, options: CsvOptions, names: Sequence[str], delimiter: str) -> _Layout:
    dialect = replace(options, delimiter=delimiter)
    records = [record for record in islice(read_records(file, dialect), _RECORDS) if record.values]
    records = _drop_last_delimiters(records)
    widths = Counter(len(record.values) for record in records)
    width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    declared = {name.lower() for name in names}
    matches = [len(declared & {value.strip().lower() for value in record.values}) for record in records[:_MAX_TITLES]]
    most_matches = max(matches, default=0)
    if options.header and most_matches:
        position = matches.index(most_matches)
        return _Layout((most_matches, width, count), _skip_to(records, position))
    position = next((index for index, record in enumerate(records) if len(record.values) == width), 0)
    if width < 2 or position > _MAX_TITLES:
        return _Layout((0, 0, 0), ())
    skip = _skip_to(records, position)
    lacks_header = options.header and (len(declared) == width if declared else is_data_row(records[position].values))
    consistency = count / len(records)
    is_first = float(position == 0)
    return _Layout((0, consistency, is_first, width), (*skip, *((("header", "false"),) if lacks_header else ())))


def _drop_last_delimiters(records: Sequence[CsvRecord]) -> list[CsvRecord]:
    """Return records without the empty value after a delimiter at their end, if all but the header have one."""
    header_width = len(records[0].values) if records else 0
    wider_records = [record for record in records if len(record.values) == header_width + 1]
    if len(wider_records) < len(records) - 1 or any(record.values[-1] for record in wider_records):
        return list(records)
    return [replace(record, values=record.values[:header_width]) for record in records]


def _skip_to(records: Sequence[CsvRecord], position: int) -> _Options:
    """Return the option that skips the records before this one; empty lines before the header don't count."""
    if position == 0:
        return ()
    return (("skip", str(records[position - 1].last_line)),)


def _read_separator_line(file: LocalFile, options: CsvOptions) -> str | None:
    """Return the delimiter that a first line `sep=;` names, as Excel writes it."""
    first = next(read_records(file, replace(options, delimiter="\t", quote="")), None)
    match = _SEPARATOR_LINE.match(first.text) if first is not None else None
    return match.group(1) if match else None
