"""Format counts, sizes, times and tables as text for people."""

import sys
from collections.abc import Sequence
from typing import Any

from runnel.errors import plural


def terminal_width() -> int:
    """Return how many columns the terminal has."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


def format_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right_aligned: Sequence[int] = ()) -> str:
    """Return rows as aligned text that fits the terminal: the widest columns are cut if necessary.

    >>> print(format_table(["a", "b"], [[1, "x"], [22, "y"]], right_aligned=[0]))
     a  b
     1  x
    22  y
    """
    cells = [[_format_cell(value) for value in row] for row in [headers, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    while sum(widths) + 2 * (len(widths) - 1) > terminal_width() and max(widths) > 12:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(_format_row(row, widths, right_aligned) for row in cells)


def _format_cell(value: object) -> str:
    r"""Return a value on one line: a line end or a tab in it is shown as it would be typed in a string.

    >>> _format_cell("a\nb"), _format_cell(1)
    ('a\\nb', '1')
    """
    return str(value).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _format_row(row: Sequence[str], widths: Sequence[int], right_aligned: Sequence[int]) -> str:
    cells = []
    for column, (text, column_width) in enumerate(zip(row, widths, strict=True)):
        cut = text if len(text) <= column_width else text[: column_width - 1] + "…"
        cells.append(cut.rjust(column_width) if column in right_aligned else cut.ljust(column_width))
    return "  ".join(cells).rstrip()


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
