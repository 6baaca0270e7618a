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
class HeaderComment:
    """The options and the description in the comments. `lines` has the line of each option in the file."""

    options: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    description: str = ""


def parse_header_options(text: str) -> dict[str, Any]:
    """Return the options of a SQL task.

    >>> parse_header_options('/* runnel tags = ["daily"] */ select 1')
    {'tags': ['daily']}
    """
    return parse_header_comment(text).options


def parse_header_comment(text: str) -> HeaderComment:
    """Parse the comments before the first word of SQL."""
    options: dict[str, Any] = {}
    lines: dict[str, int] = {}
    description_lines: list[str] = []
    is_open = False  # the last comment was a line of the description, which the next line continues
    position = 0
    while match := _COMMENT.match(text, position):
        position = match.end()
        block = match["block"]
        if block is not None and (start := _OPTIONS.match(block)):
            first = text.count("\n", 0, match.start("block") + start.end()) + 1
            options = _parse_toml(block[start.end() :], first)
            lines = _find_option_lines(block[start.end() :], options, first)
            is_open = False
        elif match["line"] is not None and (not description_lines or is_open):
            description_lines.append(match["line"].strip())
            is_open = True
        elif block is not None and not description_lines:
            description_lines = [line.strip(" *") for line in block.strip().splitlines()]
    return HeaderComment(options, lines, "\n".join(description_lines).strip())


def find_header_end(text: str) -> int:
    """Return the position at which the comments at the top end."""
    position = 0
    while match := _COMMENT.match(text, position):
        position = match.end()
    return position


def _parse_toml(block: str, first: int) -> dict[str, Any]:
    try:
        return tomllib.loads(block)
    except tomllib.TOMLDecodeError as error:
        position = _LINE.search(str(error))
        line = first + (int(position[1]) - 1 if position else block.rstrip().count("\n"))
        what = f"the options between /* runnel and */ are not valid TOML: {_END.sub('', _LINE.sub('', str(error)))}"
        fix = 'write them as in runnel.toml: tags = ["daily"]'
        raise Mistake("DECLARE_SQL_OPTIONS", what.strip(), at=f"line {line}", fix=fix) from error


def _find_option_lines(block: str, options: dict[str, Any], first: int) -> dict[str, int]:
    lines: dict[str, int] = {}
    for number, line in enumerate(block.split("\n")):
        name = re.match(r"\s*\[?\s*[\"']?([\w-]+)", line)
        if name and name[1] in options:
            lines.setdefault(name[1], first + number)
    return lines
