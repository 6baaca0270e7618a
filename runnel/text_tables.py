"""Format counts, sizes, times and tables as text for people."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runnel.errors import plural
from runnel.visible_text import show_on_one_line

_LEAST_WIDTH = 12  # of a column that is cut
_LEAST_WRAPPED_WIDTH = 24


def terminal_width() -> int:
    """Return how many columns the terminal has."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


def format_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    right_aligned: Sequence[int] = (),
    uncut: Sequence[int] = (),
    optional: Sequence[int] = (),
    wrapped: Sequence[int] = (),
) -> str:
    """Return rows as aligned text that fits the terminal: the widest columns are cut if necessary.

    Columns of `uncut`, such as names that people copy, are not. Those of `optional` are left out, in this order, if the
    terminal has no room for them. Those of `wrapped` get more lines instead of being cut.

    >>> print(format_table(["a", "b"], [[1, "x"], [22, "y"]], right_aligned=[0]))
     a  b
     1  x
    22  y
    """
    cells = [[show_on_one_line(str(value)) for value in row] for row in [headers, *rows]]
    widths = {column: max(len(row[column]) for row in cells) for column in range(len(headers))}
    least_widths = {column: min(width, _LEAST_WIDTH) for column, width in widths.items()}
    least_widths |= {column: min(widths[column], _LEAST_WRAPPED_WIDTH) for column in wrapped}
    least_widths |= {column: widths[column] for column in uncut}
    for column in optional:
        if _total_width(least_widths) > terminal_width():
            del widths[column], least_widths[column]
    while _total_width(widths) > terminal_width():
        widest = max(widths, key=lambda column: widths[column] - least_widths[column])
        if widths[widest] <= least_widths[widest]:
            break
        widths[widest] -= 1
    lines: list[str] = []
    for row in cells:
        lines += _format_row(row, widths, right_aligned, wrapped)
    return "\n".join(lines)


def _total_width(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _format_row(
    row: Sequence[str], widths: Mapping[int, int], right_aligned: Sequence[int], wrapped: Sequence[int]
) -> list[str]:
    """Return the lines of a row: one, or as many as the longest of its wrapped cells needs."""
    import textwrap

    cell_lines: dict[int, list[str]] = {}
    for column, width in widths.items():
        text = row[column]
        if len(text) <= width:
            cell_lines[column] = [text]
        elif column in wrapped:
            cell_lines[column] = textwrap.wrap(text, width)
        else:
            cell_lines[column] = [text[: width - 1] + "…"]
    lines: list[str] = []
    for number in range(max(map(len, cell_lines.values()))):
        cells = []
        for column, width in widths.items():
            text = cell_lines[column][number] if number < len(cell_lines[column]) else ""
            cells.append(text.rjust(width) if column in right_aligned else text.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def format_count(number: int | None, noun: str = "") -> str:
    """Return a number for people, with a noun.

    >>> format_count(1204, "row"), format_count(1, "row"), format_count(None)
    ('1,204 rows', '1 row', '?')
    """
    if number is None:
        return "?"
    return plural(number, noun) if noun else f"{number:,}"


def format_bytes(number: int) -> str:
    """Format a number of bytes for people.

    >>> format_bytes(512), format_bytes(1536), format_bytes(3 * 2**30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_size(number: int | None) -> str:
    """Return a number of bytes for people.

    >>> format_size(512), format_size(1536), format_size(3 * 2**30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    return "?" if number is None else format_bytes(number)


def format_time(stamp: str) -> str:
    """Return a stored time for people.

    >>> format_time("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00'
    """
    return stamp[:19].replace("T", " ")
