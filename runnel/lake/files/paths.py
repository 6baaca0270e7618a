"""Check the paths of files in the lake, and match them against globs.

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
from runnel.names import quote_value

MAX_PATH_BYTES = 1024
PATH_RULE = (
    "a path is relative and written with /, without empty, . and .. names, without control characters and \\, "
    f"as NFC-normalised UTF-8 of at most {MAX_PATH_BYTES} bytes"
)
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")  # control characters, bytes that are not UTF-8, line separators
_WILDCARD = re.compile(r"[*?\[]")


def find_path_problem(path: str) -> str | None:
    """Return what is wrong with a path, or None if it obeys `PATH_RULE`.

    >>> find_path_problem("images/cat.png") is None, find_path_problem("../up"), find_path_problem("/etc/passwd")
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
        return _find_unicode_problem(path)
    if not path.isprintable():
        return "has a control character"
    return "is too long" if len(path) > MAX_PATH_BYTES else None


def _find_unicode_problem(path: str) -> str | None:
    kinds = {unicodedata.category(character) for character in path}
    if "Cs" in kinds:
        return "is not UTF-8"
    if not kinds.isdisjoint(_REFUSED_CATEGORIES):
        return "has a control character"
    if not unicodedata.is_normalized("NFC", path):
        return "is not NFC-normalised"
    return "is too long" if len(path.encode()) > MAX_PATH_BYTES else None


def check_path(path: str) -> str:
    """Return a user's path; raise if it breaks `PATH_RULE`."""
    path_problem = find_path_problem(path)
    if path_problem:
        raise Mistake("FILES_PATH", f"the path {quote_value(path)} {path_problem}", fix=f"choose another: {PATH_RULE}")
    return path


def is_glob(text: str) -> bool:
    """Return whether a text has wildcards."""
    return bool(_WILDCARD.search(text))


def escape_glob(path: str) -> str:
    """Return the glob that matches just this path, and nothing below it.

    >>> escape_glob("in/a*.csv"), escape_glob("in/a.csv")
    ('in/a[*].csv', '[i]n/a.csv')
    """
    escaped = "".join(f"[{character}]" if character in "*?[" else character for character in path)
    index = next((index for index, character in enumerate(path) if character not in "!]/"), None)
    if escaped != path or index is None:
        return escaped
    return f"{path[:index]}[{path[index]}]{path[index + 1 :]}"


@dataclass(frozen=True)
class Glob:
    """A pattern over paths.

    `*` and `?` match within one name, `**` as a whole name matches any folders, `[a-z]` and `[!a-z]` one character.
    A pattern without wildcards matches that path and everything below it; with a `/` at its end, everything below it.
    """

    text: str

    @cached_property
    def prefix(self) -> str:
        """Return the text that every match starts with.

        >>> Glob("images/2026-*/a.png").prefix, Glob("images/").prefix
        ('images/2026-', 'images/')
        """
        wildcard = _WILDCARD.search(self.text)
        return self.text[: wildcard.start()] if wildcard else self.text

    @cached_property
    def pattern(self) -> str:
        """Return the regular expression, in the syntax that RE2 and Python share.

        >>> Glob("a/**/*.png").pattern
        '^a/(?:[^/]+/)*[^/]*[.]png$'
        """
        text = self.text + "**" if self.text.endswith("/") else self.text
        if not is_glob(text):
            return f"^{_escape_text(text)}(?:/.*)?$"
        names = text.split("/")
        parts = ["(?:[^/]+/)*" if name == "**" else _build_name_pattern(name, self.text) + "/" for name in names[:-1]]
        return f"^{''.join(parts)}{'.+' if names[-1] == '**' else _build_name_pattern(names[-1], self.text)}$"

    def may_match_between(self, lowest: str | None, highest: str | None) -> bool:
        """Return whether a match may lie between two paths; None is an unknown bound."""
        if lowest is not None and lowest[: len(self.prefix)] > self.prefix:
            return False
        return highest is None or highest >= self.prefix

    def matches(self, paths: Any) -> Any:
        """Return for each path of an Arrow column whether it matches, in linear time for any pattern."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return pc.fill_null(pc.match_substring_regex(paths, self.pattern), False)
        except pa.ArrowInvalid as error:
            raise _glob_error(self.text) from error


def _build_name_pattern(name: str, glob: str) -> str:
    pieces, index = [], 0
    while index < len(name):
        character = name[index]
        if character == "*":
            pieces.append("[^/]*")
        elif character == "?":
            pieces.append("[^/]")
        elif character == "[" and (end := name.find("]", index + (3 if name[index + 1 : index + 2] == "!" else 2))) > 0:
            pieces.append(_build_character_class(name[index + 1 : end], glob))
            index = end
        else:
            pieces.append(_escape_text(character))
        index += 1
    return "".join(pieces)


def _build_character_class(inside: str, glob: str) -> str:
    """Return a regular expression's character class; it never matches `/`, which no name contains."""
    negated, inside = inside.startswith("!"), inside.removeprefix("!")
    ranges, index = [], 0
    while index < len(inside):
        low = high = inside[index]
        if inside[index + 1 : index + 2] == "-" and index + 2 < len(inside):
            high, index = inside[index + 2], index + 2
        if low > high:
            raise _glob_error(glob)
        pieces = [(low, "."), ("0", high)] if low <= "/" <= high and not negated else [(low, high)]
        ranges += [f"{_escape_code_point(first)}-{_escape_code_point(last)}" for first, last in pieces if first <= last]
        index += 1
    return f"[^/{''.join(ranges)}]" if negated else f"[{''.join(ranges)}]"


def _escape_code_point(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _escape_text(text: str) -> str:
    return re.sub(r"([.*+?(){}\[\]|^$])", lambda match: "[.]" if match[0] == "." else f"\\{match[0]}", text)


def _glob_error(text: str) -> Mistake:
    fix = "use * and ? within a name, ** for folders, [a-z] and [!a-z] for one character"
    return Mistake("FILES_GLOB", f"{quote_value(text)} is not a glob", fix=fix)


def find_nearest_path(text: str, existing_paths: Iterable[str]) -> str | None:
    """Return the path that a user who typed `text` most likely meant, or None.

    Compares closely only the paths that share the longest prefix: a table may have millions.

    >>> find_nearest_path("docs/raedme.md", ["docs/readme.md", "img/a.png"])
    'docs/readme.md'
    """
    likely = heapq.nlargest(100, existing_paths, key=lambda path: _shared_prefix_length(text, path))
    close = get_close_matches(text, likely, n=1, cutoff=0.6)
    return close[0] if close else None


def _shared_prefix_length(text: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    for index, (a, b) in enumerate(zip(text, other, strict=False)):
        if a != b:
            return index
    return min(len(text), len(other))
