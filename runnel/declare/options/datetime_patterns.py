"""Translate patterns of dates and times, from Spark's form (`dd/MM/yyyy`) or strftime's (`%d/%m/%Y`). Pure."""

import re

_LETTERS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "M": "%-m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "d": "%-d",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "m": "%-M",
    "ss": "%S",
    "s": "%-S",
    "SSS": "%g",
    "SSSSSS": "%f",
    "a": "%p",
    "E": "%a",
    "EEE": "%a",
    "EEEE": "%A",
    "XXX": "%z",
    "XX": "%z",
    "X": "%z",
    "Z": "%z",
    "VV": "%Z",
    "z": "%Z",
}
EPOCHS = ("epoch", "epoch_ms")
"""Words instead of a pattern: seconds, or milliseconds, since 1970."""
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def to_strptime(pattern: str) -> str | None:
    """Convert a pattern to the format of strptime; return None if it is not a valid pattern.

    >>> to_strptime("dd/MM/yyyy"), to_strptime("yyyy-MM-dd'T'HH:mm:ss.SSS"), to_strptime("%d.%m.%y"), to_strptime("qq")
    ('%d/%m/%Y', '%Y-%m-%dT%H:%M:%S.%g', '%d.%m.%y', None)
    """
    if "%" in pattern:
        return pattern
    pieces, end = [], 0
    for match in _PIECE.finditer(pattern):
        if match.start() != end:
            return None
        end = match.end()
        text = match.group()
        if text.startswith("'"):
            pieces.append(match.group(1).replace("''", "'") or "'")
        elif text[0].isalpha():
            if text not in _LETTERS:
                return None
            pieces.append(_LETTERS[text])
        else:
            pieces.append(text)
    return "".join(pieces) if end == len(pattern) and pattern.strip() else None


def find_unsupported_letters(pattern: str) -> str | None:
    """Return the first letters of a pattern that are not supported, such as `G`; None if all are.

    >>> find_unsupported_letters("dd.MM.yyyy G"), find_unsupported_letters("M/d/yyyy h:mm a")
    ('G', None)
    """
    letters = [match.group() for match in _PIECE.finditer(pattern) if match.group()[0].isalpha()]
    return next((text for text in letters if text not in _LETTERS), None)


def list_supported_letters() -> str:
    """Return the letters that a pattern may have, for messages."""
    return ", ".join(_LETTERS)
