"""Patterns: LIKE, Java's regular expressions and date formats, as far as DuckDB means the same. Pure."""

import re

from runnel.query.dialect.typed_expression import Refused

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


def like(pattern: str, escape: str = "\\") -> tuple[str, bool]:
    """Return a LIKE pattern and whether it holds escapes; Spark fails on an escape before any other character."""
    index = 0
    escaped = False
    while index < len(pattern):
        if pattern[index] == escape:
            if pattern[index + 1 : index + 2] not in ("%", "_", escape) or not pattern[index + 1 :]:
                raise Refused("a LIKE pattern with a stray escape")
            escaped = True
            index += 1
        index += 1
    return pattern, escaped


def is_plain(pattern: str) -> bool:
    """Tell whether a regular expression means just its own text."""
    return bool(pattern) and not _META & set(pattern)


def regex(pattern: str, *, consuming: bool = False) -> str:
    """Return the RE2 form of a Java regular expression of the plain sort.

    `consuming` where what was matched matters, not only whether: there `$` has no equal form.

    >>> regex("a.c") == "a[^" + chr(92) + "n" + _ANY[4:] + "c"
    True
    """
    out: list[str] = []
    index = 0
    while index < len(pattern):
        piece, index = _piece(pattern, index, consuming)
        out.append(piece)
        quantifier = _QUANTIFIER.match(pattern, index)
        if quantifier:
            if piece in ("", "^", "(", "(?:", "|", _END):
                raise Refused("a regular expression with a stray repetition")
            out.append(quantifier[0])
            index = quantifier.end()
            if pattern[index : index + 1] in ("+", "*", "?", "{"):
                raise Refused("a regular expression with a possessive repetition")
    if "$" in pattern and ("\\r" in pattern or "\r" in pattern):
        raise Refused("a regular expression with a line end")
    return "".join(out)


def _piece(pattern: str, index: int, consuming: bool) -> tuple[str, int]:
    char = pattern[index]
    if char == "\\":
        return _escape(pattern[index + 1 : index + 2]), index + 2
    if char == "[":
        return _class(pattern, index)
    if char == "(":
        if pattern.startswith("(?", index) and not pattern.startswith("(?:", index):
            raise Refused("a regular expression with a special group")
        length = 3 if pattern.startswith("(?:", index) else 1
        return pattern[index : index + length], index + length
    if char == ".":
        return _ANY, index + 1
    if char == "$":
        if consuming or index + 1 != len(pattern):
            raise Refused("a regular expression with $ inside")
        return _END, index + 1
    if char in "{}]*+?":
        raise Refused("a regular expression with a stray bracket or repetition")
    return char, index + 1


def _escape(char: str) -> str:
    if char in _CLASSES:
        return f"[{_CLASSES[char]}]"
    if char.lower() in _CLASSES:
        return f"[^{_CLASSES[char.lower()]}]"
    if char in _CONTROLS:
        return _CONTROLS[char]
    if not char or char.isalnum() or not char.isascii():
        raise Refused(f"a regular expression with \\{char}")
    return "\\" + char


def _class(pattern: str, index: int) -> tuple[str, int]:
    end = index + 1
    negated = pattern[end : end + 1] == "^"
    end += negated
    out = ["[^" if negated else "["]
    start = end
    while end < len(pattern) and (pattern[end] != "]" or end == start):
        item = _CLASS_ITEM.match(pattern, end)
        if item is None or item[2] in ("[", "&", "]") or (item[2] == "^" and end == start):
            raise Refused("a regular expression with a nested class")
        if item[1] is not None:
            out.append(_CLASSES.get(item[1]) or _CONTROLS.get(item[1]) or _escape(item[1]))
            if out[-1].startswith("["):
                raise Refused("a regular expression with a nested class")
        else:
            out.append(item[2])
        end = item.end()
    if end >= len(pattern):
        raise Refused("a regular expression with an open class")
    return "".join(out) + "]", end + 1


def groups(pattern: str) -> int:
    """Return how many groups a pattern that `regex` accepts captures."""
    bare = re.sub(r"\\.|\[\^?.[^\]]*\]", "", pattern, flags=re.DOTALL)
    return len(re.findall(r"\((?!\?)", bare))


def repeats_groups(pattern: str) -> bool:
    """Tell whether a group is repeated or optional; what it then captures is not the same everywhere."""
    return re.search(r"\)[*+?{]", pattern) is not None


def strftime(pattern: str) -> str:
    """Return DuckDB's form of a date format of years, months, days, hours, minutes and seconds.

    >>> strftime("yyyy-MM-dd HH:mm")
    '%Y-%m-%d %H:%M'
    """
    out = []
    for piece in _FORMAT.findall(pattern):
        if piece not in _FORMATS and piece not in "-/:., _":
            raise Refused(f"the date format {pattern!r}")
        out.append(_FORMATS.get(piece, piece))
    joined = "".join(out)
    if re.search(r"[yMdHms]", re.sub(r"%[YmdHMS]", "", joined)) or re.search(r"(yyyyy|MMM|ddd|HHH|mmm|sss)", pattern):
        raise Refused(f"the date format {pattern!r}")
    return joined


def may_be_empty(pattern: str) -> bool:
    """Tell whether a pattern may match nothing at all; after such a match the engines go on differently."""
    try:
        return re.search(pattern.replace(r"\x{", r"\u{").replace(_ANY, ".").replace(_END, "$"), "") is not None
    except re.error:
        return True
