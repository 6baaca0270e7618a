"""Read and check the options of `rn.files` that describe how files are written. Pure."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.options.datetime_patterns import (
    EPOCHS,
    find_unsupported_letters,
    list_supported_letters,
    to_strptime,
)
from runnel.declare.options.file_formats import OPTION_FORMATS
from runnel.declare.options.option_reader import OptionReader
from runnel.names import quote_value

_MAX_LENGTHS = {"delimiter": 4, "quote": 1, "escape": 1, "comment": 1}
_MAY_BE_EMPTY = ("quote", "escape")
_CHOICES = {
    "missing": ("bad", "null"),
    "missing_columns": ("stop", "null"),
    "decimal": (".", ","),
    "thousands": (".", ",", "'", " ", "_"),
}
_PATTERN_OPTIONS = ("date_format", "timestamp_format")
_TEXT_OPTIONS = ("encoding", "records", "row_tag")


def read_file_options(reader: OptionReader, values: Mapping[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    """Return the options that are set, as pairs of text; report wrong ones and those of another format."""
    options: list[tuple[str, str]] = []
    for name, formats in OPTION_FORMATS.items():
        if values.get(name) is None:
            continue
        if kind not in formats:
            about = " or ".join(_format_label(format_name) for format_name in formats)
            fix = (
                'add format="csv" if it is CSV, or leave it out'
                if kind == "text" and "csv" in formats
                else "leave it out"
            )
            reader.reject(name, f"`{name}` applies only to {about}, but this is {_format_label(kind)}", fix)
            continue
        options += [(name, text) for text in _read_option(reader, name, values[name])]
    _reject_equal_separators(reader, dict(options))
    return tuple(options)


def _read_option(reader: OptionReader, name: str, value: Any) -> list[str]:
    if name in ("header", "trim", "multiline"):
        return [str(reader.flag(name)).lower()]
    if name == "skip":
        return [str(reader.number(name, 0))]
    if name in _CHOICES:
        chosen = reader.choice(name, _CHOICES[name])
        return [chosen] if chosen is not None else []
    if name == "null":
        return _read_nulls(reader, value)
    if name in _PATTERN_OPTIONS:
        return _read_pattern(reader, name, value)
    if name == "timezone":
        return _read_time_zone(reader, value)
    if name in _TEXT_OPTIONS:
        text = reader.text(name)
        return [text] if text is not None else []
    return _read_characters(reader, name, value)


def _read_characters(reader: OptionReader, name: str, value: Any) -> list[str]:
    max_length, min_length = _MAX_LENGTHS[name], 0 if name in _MAY_BE_EMPTY else 1
    if isinstance(value, str) and min_length <= len(value.encode()) <= max_length:
        return [value]
    allowed_length = "one character" if max_length == 1 else f"one to {max_length} characters"
    reader.reject(
        name, f"`{name}` can't be {quote_value(value)}: it is {allowed_length}", f'write {name}="{_EXAMPLES[name]}"'
    )
    return []


_EXAMPLES = {"delimiter": ";", "quote": "'", "escape": "\\\\", "comment": "#"}


def _read_nulls(reader: OptionReader, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and texts and all(isinstance(text, str) for text in texts):
        return list(dict.fromkeys(texts))
    reader.reject("null", f"`null` can't be {quote_value(value)}", 'write null="NA" or null=["", "NA"]')
    return []


def _read_pattern(reader: OptionReader, name: str, value: Any) -> list[str]:
    if name == "timestamp_format" and value in EPOCHS:
        return [value]
    if isinstance(value, str) and to_strptime(value) is not None:
        return [value]
    problem, (spark_example, strftime_example) = f"`{name}` can't be {quote_value(value)}", _PATTERN_EXAMPLES[name]
    fix = f'write {name}="{spark_example}" or {name}="{strftime_example}"'
    letters = find_unsupported_letters(value) if isinstance(value, str) else None
    if letters is not None:
        problem += f": `{letters}` is not supported"
        fix += f"; there are {list_supported_letters()}; other text goes into single quotes"
    reader.reject(name, problem, fix)
    return []


_PATTERN_EXAMPLES = {
    "date_format": ("dd/MM/yyyy", "%d/%m/%Y"),
    "timestamp_format": ("dd/MM/yyyy HH:mm:ss", "%d/%m/%Y %H:%M:%S"),
}


def _read_time_zone(reader: OptionReader, value: Any) -> list[str]:
    from runnel.declare.options.deadline import find_time_zone

    if find_time_zone(value) is not None:
        return [str(value)]
    reader.reject("timezone", f"`timezone` can't be {quote_value(value)}", 'write timezone="Europe/Berlin"')
    return []


def _reject_equal_separators(reader: OptionReader, options: Mapping[str, str]) -> None:
    decimal = options.get("decimal", ".")
    if options.get("thousands") == decimal:
        other = "," if decimal == "." else "."
        what = f"`thousands` and `decimal` are both {quote_value(decimal)}"
        reader.reject("thousands", what, f'write decimal="{other}", or another thousands="..."')


def _format_label(kind: str) -> str:
    return (
        kind
        if kind in ("text", "binary")
        else {"jsonl": "JSON lines", "avro": "Avro", "parquet": "Parquet"}.get(kind, kind.upper())
    )
