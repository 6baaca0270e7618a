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
    "mm": "%M",
    "ss": "%S",
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
