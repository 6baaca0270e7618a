"""Render values as HTML for notebooks: plain tables, everything escaped. Imports nothing."""

from collections.abc import Collection, Iterable, Sequence
from html import escape


def render_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], numeric_columns: Collection[int] = ()
) -> str:
    """Return rows as an HTML table; the columns in `numeric_columns` are numbers. None is an empty cell.

    >>> render_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    styles = [' style="text-align:right"' if index in numeric_columns else "" for index in range(len(header))]
    header_cells = "".join(f"<th{style}>{render_text(cell)}</th>" for style, cell in zip(styles, header, strict=True))
    rendered_rows = (
        "".join(f"<td{style}>{render_text(cell)}</td>" for style, cell in zip(styles, row, strict=True)) for row in rows
    )
    body = "".join(f"<tr>{cells}</tr>" for cells in rendered_rows)
    return f"<table><thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table>"


def render_text(value: object, max_length: int = 200) -> str:
    """Return a value as escaped text, cut where it is long.

    >>> render_text("a" * 5, max_length=3), render_text(None)
    ('aa…', '')
    """
    full_text = "" if value is None else str(value)
    return escape(full_text if len(full_text) <= max_length else full_text[: max_length - 1] + "…")
