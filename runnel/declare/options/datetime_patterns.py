"""How dates and times are written in files, as Spark says it (`dd/MM/yyyy`) or as strftime does (`%d/%m/%Y`). Pure."""

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


def strptime_of(pattern: str) -> str | None:
    """Return a pattern as strptime takes it, or None where it can't be read.

    >>> strptime_of("dd/MM/yyyy"), strptime_of("yyyy-MM-dd'T'HH:mm:ss.SSS"), strptime_of("%d.%m.%y"), strptime_of("qq")
    ('%d/%m/%Y', '%Y-%m-%dT%H:%M:%S.%g', '%d.%m.%y', None)
    """
    if "%" in pattern:
        return pattern
    made, end = [], 0
    for found in _PIECE.finditer(pattern):
        if found.start() != end:
            return None
        end = found.end()
        text = found.group()
        if text.startswith("'"):
            made.append(found.group(1).replace("''", "'") or "'")
        elif text[0].isalpha():
            if text not in _LETTERS:
                return None
            made.append(_LETTERS[text])
        else:
            made.append(text)
    return "".join(made) if end == len(pattern) and pattern.strip() else None
