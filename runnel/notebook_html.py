"""Values as HTML, for notebooks: plain tables, everything escaped. Imports nothing."""

from collections.abc import Collection, Iterable, Sequence
from html import escape


def table(head: Sequence[object], rows: Iterable[Sequence[object]], right: Collection[int] = ()) -> str:
    """Return rows as an HTML table; the columns in `right` are numbers. None is an empty cell.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    sides = [' style="text-align:right"' if at in right else "" for at in range(len(head))]
    top = "".join(f"<th{side}>{text(cell)}</th>" for side, cell in zip(sides, head, strict=True))
    lines = ("".join(f"<td{side}>{text(cell)}</td>" for side, cell in zip(sides, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def text(value: object, most: int = 200) -> str:
    """Return a value as escaped text, cut where it is long.

    >>> text("a" * 5, most=3), text(None)
    ('aa…', '')
    """
    shown = "" if value is None else str(value)
    return escape(shown if len(shown) <= most else shown[: most - 1] + "…")
