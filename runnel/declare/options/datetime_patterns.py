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
EPOCHS = {"epoch": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
"""Words instead of a pattern: seconds, milliseconds or microseconds since 1970; with the microseconds of each."""
_SHAPES = {  # the digits that Spark's parser takes for letters; other letters stand for names and zones
    **dict.fromkeys(("yyyy", "%Y"), r"\d{4}"),
    **dict.fromkeys(("yy", "MM", "dd", "HH", "hh", "mm", "ss", "%y"), r"\d{2}"),
    **dict.fromkeys(("M", "d", "H", "h", "m", "s"), r"\d{1,2}"),
    "SSS": r"\d{1,3}",
    "SSSSSS": r"\d{1,6}",
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


def to_shape(pattern: str) -> str:
    r"""Return a regular expression for the texts that a pattern accepts, as strict about digits as Spark's parser is.

    >>> to_shape("dd.MM.yyyy"), to_shape("M/d/yyyy h:mm a"), to_shape("%d.%m.%Y")
    ('\\d{2}\\.\\d{2}\\.\\d{4}', '\\d{1,2}/\\d{1,2}/\\d{4}\\s+\\d{1,2}:\\d{2}\\s+.+', '.+\\..+\\.\\d{4}')
    """
    pieces = re.findall(r"%-?.|[^%]+", pattern) if "%" in pattern else [m.group() for m in _PIECE.finditer(pattern)]
    shapes = []
    for piece in pieces:
        if piece.startswith("%") or (piece[0].isalpha() and "%" not in pattern):
            shapes.append(_SHAPES.get(piece, ".+"))
        else:
            literal = piece[1:-1].replace("''", "'") or "'" if piece.startswith("'") and "%" not in pattern else piece
            shapes.append(re.sub(r"(\\ |\s)+", r"\\s+", re.escape(literal)))
    return "".join(shapes)


def has_short_year(pattern: str) -> bool:
    """Tell whether a pattern in Spark's form has years of two digits, which are those of 2000 to 2099."""
    return "%" not in pattern and any(match.group() == "yy" for match in _PIECE.finditer(pattern))


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
