"""What `rn.files` may say about how files are written, checked and kept as text. Pure."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.options.datetime_patterns import strptime_of
from runnel.declare.options.file_formats import OF_FORMATS
from runnel.declare.options.option_reader import Given
from runnel.names import shown

_LONGEST = {"delimiter": 4, "quote": 1, "escape": 1, "comment": 1}
_MAY_BE_EMPTY = ("quote", "escape")
_CHOICES = {"missing": ("bad", "null"), "decimal": (".", ",")}
_FORMATS = ("date_format", "timestamp_format")
_TEXTS = ("encoding", "records", "row_tag")


def written(given: Given, values: Mapping[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    """Return the options that were given, as pairs; those that are wrong, or about another format, are told."""
    found: list[tuple[str, str]] = []
    for name, kinds in OF_FORMATS.items():
        if values.get(name) is None:
            continue
        if kind not in kinds:
            about = " or ".join(_called(one) for one in kinds)
            given.wrong(name, f"`{name}` is about {about}, but this is {_called(kind)}", "leave it out")
            continue
        found += [(name, text) for text in _texts(given, name, values[name])]
    return tuple(found)


def _texts(given: Given, name: str, value: Any) -> list[str]:
    if name in ("header", "trim"):
        return [str(given.flag(name)).lower()]
    if name == "skip":
        return [str(given.number(name, 0))]
    if name in _CHOICES:
        chosen = given.choice(name, _CHOICES[name])
        return [chosen] if chosen is not None else []
    if name == "null":
        return _nulls(given, value)
    if name in _FORMATS:
        return _format(given, name, value)
    if name in _TEXTS:
        text = given.text(name)
        return [text] if text is not None else []
    return _character(given, name, value)


def _character(given: Given, name: str, value: Any) -> list[str]:
    longest, least = _LONGEST[name], 0 if name in _MAY_BE_EMPTY else 1
    if isinstance(value, str) and least <= len(value.encode()) <= longest:
        return [value]
    few = "one character" if longest == 1 else f"one to {longest} characters"
    given.wrong(name, f"`{name}` can't be {shown(value)}: it is {few}", f'write {name}="{_EXAMPLES[name]}"')
    return []


_EXAMPLES = {"delimiter": ";", "quote": "'", "escape": "\\\\", "comment": "#"}


def _nulls(given: Given, value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if isinstance(found, list | tuple) and found and all(isinstance(one, str) for one in found):
        return list(dict.fromkeys(found))
    given.wrong("null", f"`null` can't be {shown(value)}", 'write null="NA" or null=["", "NA"]')
    return []


def _format(given: Given, name: str, value: Any) -> list[str]:
    found = strptime_of(value) if isinstance(value, str) else None
    if found is None:
        fix = f'write {name}="dd/MM/yyyy" or {name}="%d/%m/%Y"'
        given.wrong(name, f"`{name}` can't be {shown(value)}", fix)
        return []
    return [found]


def _called(kind: str) -> str:
    return (
        kind
        if kind in ("text", "binary")
        else {"jsonl": "JSON lines", "avro": "Avro", "parquet": "Parquet"}.get(kind, kind.upper())
    )
