"""Translate LIKE patterns, Java regular expressions and date formats that DuckDB can match exactly. Pure."""

import re

from runnel.query.dialect.typed_expression import Untranslatable

_SPACE = r"\t\n\x0B\f\r "
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": _SPACE}
_CONTROLS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??")
_CLASS_ITEM = re.compile(r"\\(.)|(.)", re.DOTALL)
_FORMAT = re.compile(r"yyyy|MM|dd|HH|mm|ss|[-/:., _]|.", re.DOTALL)
_FORMATS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_META = frozenset(".^$|?*+()[]{}\\")


def check_like(pattern: str, escape: str = "\\") -> tuple[str, bool]:
    """Return a LIKE pattern and whether it has escapes; refuse escapes before other characters, as Spark does."""
    index = 0
    has_escapes = False
    while index < len(pattern):
        if pattern[index] == escape:
            if pattern[index + 1 : index + 2] not in ("%", "_", escape) or not pattern[index + 1 :]:
                raise Untranslatable("a LIKE pattern with a stray escape")
            has_escapes = True
            index += 1
        index += 1
    return pattern, has_escapes


def is_plain(pattern: str) -> bool:
    """Return whether a regular expression has no special characters."""
    return bool(pattern) and not _META & set(pattern)


def translate_regex(pattern: str, *, consuming: bool = False) -> str:
    """Translate a simple Java regular expression to RE2.

    `consuming` if the matched text matters, not only whether there is a match: then `$` has no equivalent.

    >>> translate_regex("a.c") == "a[^" + chr(92) + "n" + _ANY[4:] + "c"
    True
    """
    pieces: list[str] = []
    index = 0
    while index < len(pattern):
        piece, index = _translate_piece(pattern, index, consuming)
        pieces.append(piece)
        quantifier = _QUANTIFIER.match(pattern, index)
        if quantifier:
            if piece in ("", "^", "(", "(?:", "|", _END):
                raise Untranslatable("a regular expression with a stray repetition")
            pieces.append(quantifier[0])
            index = quantifier.end()
            if pattern[index : index + 1] in ("+", "*", "?", "{"):
                raise Untranslatable("a regular expression with a possessive repetition")
    if "$" in pattern and ("\\r" in pattern or "\r" in pattern):
        raise Untranslatable("a regular expression with a line end")
    return "".join(pieces)


def _translate_piece(pattern: str, index: int, consuming: bool) -> tuple[str, int]:
    char = pattern[index]
    if char == "\\":
        return _translate_escape(pattern[index + 1 : index + 2]), index + 2
    if char == "[":
        return _translate_class(pattern, index)
    if char == "(":
        if pattern.startswith("(?", index) and not pattern.startswith("(?:", index):
            raise Untranslatable("a regular expression with a special group")
        length = 3 if pattern.startswith("(?:", index) else 1
        return pattern[index : index + length], index + length
    if char == ".":
        return _ANY, index + 1
    if char == "$":
        if consuming or index + 1 != len(pattern):
            raise Untranslatable("a regular expression with $ inside")
        return _END, index + 1
    if char in "{}]*+?":
        raise Untranslatable("a regular expression with a stray bracket or repetition")
    return char, index + 1


def _translate_escape(char: str) -> str:
    if char in _CLASSES:
        return f"[{_CLASSES[char]}]"
    if char.lower() in _CLASSES:
        return f"[^{_CLASSES[char.lower()]}]"
    if char in _CONTROLS:
        return _CONTROLS[char]
    if not char or char.isalnum() or not char.isascii():
        raise Untranslatable(f"a regular expression with \\{char}")
    return "\\" + char


def _translate_class(pattern: str, index: int) -> tuple[str, int]:
    end = index + 1
    is_negated = pattern[end : end + 1] == "^"
    end += is_negated
    pieces = ["[^" if is_negated else "["]
    start = end
    while end < len(pattern) and (pattern[end] != "]" or end == start):
        item = _CLASS_ITEM.match(pattern, end)
        if item is None or item[2] in ("[", "&", "]") or (item[2] == "^" and end == start):
            raise Untranslatable("a regular expression with a nested class")
        if item[1] is not None:
            pieces.append(_CLASSES.get(item[1]) or _CONTROLS.get(item[1]) or _translate_escape(item[1]))
            if pieces[-1].startswith("["):
                raise Untranslatable("a regular expression with a nested class")
        else:
            pieces.append(item[2])
        end = item.end()
    if end >= len(pattern):
        raise Untranslatable("a regular expression with an open class")
    return "".join(pieces) + "]", end + 1


def count_groups(pattern: str) -> int:
    """Return the number of capturing groups of a pattern that `translate_regex` accepts."""
    stripped = re.sub(r"\\.|\[\^?.[^\]]*\]", "", pattern, flags=re.DOTALL)
    return len(re.findall(r"\((?!\?)", stripped))


def has_repeated_group(pattern: str) -> bool:
    """Return whether a group is repeated or optional; the engines then differ in what it captures."""
    return re.search(r"\)[*+?{]", pattern) is not None


def translate_date_format(pattern: str) -> str:
    """Translate a date format of years, months, days, hours, minutes and seconds to DuckDB's strftime format.

    >>> translate_date_format("yyyy-MM-dd HH:mm")
    '%Y-%m-%d %H:%M'
    """
    pieces = []
    for piece in _FORMAT.findall(pattern):
        if piece not in _FORMATS and piece not in "-/:., _":
            raise Untranslatable(f"the date format {pattern!r}")
        pieces.append(_FORMATS.get(piece, piece))
    strftime_format = "".join(pieces)
    if re.search(r"[yMdHms]", re.sub(r"%[YmdHMS]", "", strftime_format)) or re.search(
        r"(yyyyy|MMM|ddd|HHH|mmm|sss)", pattern
    ):
        raise Untranslatable(f"the date format {pattern!r}")
    return strftime_format


def can_match_empty(pattern: str) -> bool:
    """Return whether a pattern may match the empty string; the engines continue differently after such a match."""
    try:
        return re.search(pattern.replace(r"\x{", r"\u{").replace(_ANY, ".").replace(_END, "$"), "") is not None
    except re.error:
        return True
