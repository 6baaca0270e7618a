"""Read the comments at the top of a SQL file: its options, as TOML between `/* runnel` and `*/`, and its description.

Pure: text in, values out.
"""

import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from runnel.errors import Mistake

_COMMENT = re.compile(r"\s*(?:--(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/)", re.DOTALL)
_OPTIONS = re.compile(r"\s*runnel(?=\s|\Z)")
_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")
_END = re.compile(r"\(at end of document\)")


@dataclass(frozen=True)
class Comments:
    """What the comments say. `lines` tells on which line of the file each option stands."""

    options: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    description: str = ""


def options_in(text: str) -> dict[str, Any]:
    """Return the options of a SQL task.

    >>> options_in('/* runnel tags = ["daily"] */ select 1')
    {'tags': ['daily']}
    """
    return comments_in(text).options


def comments_in(text: str) -> Comments:
    """Return what the comments before the first word of SQL say."""
    options: dict[str, Any] = {}
    lines: dict[str, int] = {}
    described: list[str] = []
    is_open = False  # the last comment was a line of the description: the next line goes on with it
    at = 0
    while found := _COMMENT.match(text, at):
        at = found.end()
        block = found["block"]
        if block is not None and (start := _OPTIONS.match(block)):
            first = text.count("\n", 0, found.start("block") + start.end()) + 1
            options = _toml(block[start.end() :], first)
            lines = _lines(block[start.end() :], options, first)
            is_open = False
        elif found["line"] is not None and (not described or is_open):
            described.append(found["line"].strip())
            is_open = True
        elif block is not None and not described:
            described = [line.strip(" *") for line in block.strip().splitlines()]
    return Comments(options, lines, "\n".join(described).strip())


def end_of_comments(text: str) -> int:
    """Return where the comments at the top end."""
    at = 0
    while found := _COMMENT.match(text, at):
        at = found.end()
    return at


def _toml(block: str, first: int) -> dict[str, Any]:
    try:
        return tomllib.loads(block)
    except tomllib.TOMLDecodeError as error:
        place = _LINE.search(str(error))
        line = first + (int(place[1]) - 1 if place else block.rstrip().count("\n"))
        what = f"the options between /* runnel and */ are not valid TOML: {_END.sub('', _LINE.sub('', str(error)))}"
        fix = 'write them as in runnel.toml: tags = ["daily"]'
        raise Mistake("DECLARE_SQL_OPTIONS", what.strip(), at=f"line {line}", fix=fix) from error


def _lines(block: str, options: dict[str, Any], first: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(block.split("\n")):
        name = re.match(r"\s*\[?\s*[\"']?([\w-]+)", line)
        if name and name[1] in options:
            found.setdefault(name[1], first + number)
    return found
