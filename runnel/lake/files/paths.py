"""The paths of files in the lake: the one rule that they obey, and globs over them.

Pure: it never touches the disk.
"""

import heapq
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from runnel.errors import Mistake
from runnel.names import shown

MOST_BYTES = 1024
RULE = (
    "a path is relative and written with /, without empty, . and .. names, without control characters and \\, "
    f"as NFC-normalised UTF-8 of at most {MOST_BYTES} bytes"
)
_REFUSED = ("Cc", "Cs", "Zl", "Zp")  # control characters, bytes that are no UTF-8, and separators of lines
_WILD = re.compile(r"[*?\[]")


def problem(path: str) -> str | None:
    """Return what is wrong with a path, or None where it obeys the rule.

    >>> problem("images/cat.png") is None, problem("../up"), problem("/etc/passwd")
    (True, 'has the name `..`', 'is absolute')
    """
    if path.startswith("/"):
        return "is absolute"
    for name in path.split("/"):
        if name in ("", ".", ".."):
            return f"has the name `{name}`" if name else "has an empty name"
    if "\\" in path:
        return "has a \\"
    if not path.isascii():
        return _beyond_ascii(path)
    if not path.isprintable():
        return "has a control character"
    return "is too long" if len(path) > MOST_BYTES else None


def _beyond_ascii(path: str) -> str | None:
    kinds = {unicodedata.category(character) for character in path}
    if "Cs" in kinds:
        return "is not UTF-8"
    if not kinds.isdisjoint(_REFUSED):
        return "has a control character"
    if not unicodedata.is_normalized("NFC", path):
        return "is not NFC-normalised"
    return "is too long" if len(path.encode()) > MOST_BYTES else None


def checked(path: str) -> str:
    """Return a path that a user gave, refusing what breaks the rule."""
    found = problem(path)
    if found:
        raise Mistake("FILES_PATH", f"the path {shown(path)} {found}", fix=f"choose another: {RULE}")
    return path


def is_glob(text: str) -> bool:
    """Tell whether a text has wildcards."""
    return bool(_WILD.search(text))


@dataclass(frozen=True)
class Glob:
    """A pattern over paths.

    `*` and `?` stay within one name, `**` as a whole name stands for any folders, `[a-z]` and `[!a-z]` for one
    character. Without wildcards it means that path and everything below it; a `/` at its end, everything below.
    """

    text: str

    @cached_property
    def prefix(self) -> str:
        """Return the text that every match starts with.

        >>> Glob("images/2026-*/a.png").prefix, Glob("images/").prefix
        ('images/2026-', 'images/')
        """
        found = _WILD.search(self.text)
        return self.text[: found.start()] if found else self.text

    @cached_property
    def pattern(self) -> str:
        """Return the regular expression, in the form that RE2 and Python share.

        >>> Glob("a/**/*.png").pattern
        '^a/(?:[^/]+/)*[^/]*[.]png$'
        """
        text = self.text + "**" if self.text.endswith("/") else self.text
        if not is_glob(text):
            return f"^{_escaped(text)}(?:/.*)?$"
        names = text.split("/")
        parts = ["(?:[^/]+/)*" if name == "**" else _name_pattern(name, self.text) + "/" for name in names[:-1]]
        return f"^{''.join(parts)}{'.+' if names[-1] == '**' else _name_pattern(names[-1], self.text)}$"

    def may_span(self, lowest: str | None, highest: str | None) -> bool:
        """Tell whether a match may lie between two paths; None is an end that is not known."""
        if lowest is not None and lowest[: len(self.prefix)] > self.prefix:
            return False
        return highest is None or highest >= self.prefix

    def matches(self, paths: Any) -> Any:
        """Return for each path of an Arrow column whether it matches, in linear time whatever the pattern."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return pc.fill_null(pc.match_substring_regex(paths, self.pattern), False)
        except pa.ArrowInvalid as error:
            raise _bad(self.text) from error


def _name_pattern(name: str, whole: str) -> str:
    made, at = [], 0
    while at < len(name):
        character = name[at]
        if character == "*":
            made.append("[^/]*")
        elif character == "?":
            made.append("[^/]")
        elif character == "[" and (end := name.find("]", at + (3 if name[at + 1 : at + 2] == "!" else 2))) > 0:
            made.append(_class(name[at + 1 : end], whole))
            at = end
        else:
            made.append(_escaped(character))
        at += 1
    return "".join(made)


def _class(inside: str, whole: str) -> str:
    """Return a set of characters; a name has no `/`, so neither has a set."""
    negated, inside = inside.startswith("!"), inside.removeprefix("!")
    made, at = [], 0
    while at < len(inside):
        low = high = inside[at]
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            high, at = inside[at + 2], at + 2
        if low > high:
            raise _bad(whole)
        pieces = [(low, "."), ("0", high)] if low <= "/" <= high and not negated else [(low, high)]
        made += [f"{_point(first)}-{_point(last)}" for first, last in pieces if first <= last]
        at += 1
    return f"[^/{''.join(made)}]" if negated else f"[{''.join(made)}]"


def _point(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _escaped(text: str) -> str:
    return re.sub(r"([.*+?(){}\[\]|^$])", lambda found: "[.]" if found[0] == "." else f"\\{found[0]}", text)


def _bad(text: str) -> Mistake:
    fix = "use * and ? within a name, ** for folders, [a-z] and [!a-z] for one character"
    return Mistake("FILES_GLOB", f"{shown(text)} is not a glob", fix=fix)


def nearest_path(text: str, known: Iterable[str]) -> str | None:
    """Return the path that someone who typed `text` most likely meant.

    Only those that share the longest beginning are compared closely: a table may have millions.

    >>> nearest_path("docs/raedme.md", ["docs/readme.md", "img/a.png"])
    'docs/readme.md'
    """
    likely = heapq.nlargest(100, known, key=lambda path: _shared(text, path))
    close = get_close_matches(text, likely, n=1, cutoff=0.6)
    return close[0] if close else None


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
