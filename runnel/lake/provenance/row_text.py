"""Describe where rows come from as text for people, as `runnel why --row` and `print` show it."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from runnel.text_tables import format_count, format_time

if TYPE_CHECKING:
    from runnel.lake.provenance.input_rows import InputRows
    from runnel.lake.provenance.row_provenance import RowProvenance, TracedRow

_WIDTH, _INDENT = 100, 13


def describe_rows(provenance: "RowProvenance") -> str:
    """Return the origin of each row, one aspect per line."""
    total, row_count = provenance.rows_total, len(provenance.rows)
    lines = [
        f"{provenance.table} at {provenance.at.id[:8]} on {provenance.at.branch}: "
        f"{format_count(total, 'row')} where {provenance.condition}"
        + (f"; the first {row_count}" if total > row_count else "")
    ]
    for row in provenance.rows:
        lines.append("")
        for name, texts in _describe_row(row):
            wrapped = [line for text in texts for line in _wrap_text(text)]
            lines += [f"  {'' if number else name:<{_INDENT - 2}}{line}" for number, line in enumerate(wrapped)]
    return "\n".join(lines)


def _wrap_text(text: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()))
    return wrap(
        text.strip(), _WIDTH - _INDENT, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )


def _describe_row(row: "TracedRow") -> Iterator[tuple[str, Sequence[str]]]:
    yield "row", [", ".join(f"{name}={'null' if value is None else value}" for name, value in row.values.items())]
    if row.file is not None:
        place = row.line or (f"record {row.record}" if row.record is not None else None)
        yield "file", [f"{row.file}{f', {place}' if place else ''}"]
    if row.offsets:
        spans = [
            f"{span.topic}[{span.partition}] offsets {span.first} to {span.last}"
            if span.last > span.first
            else f"{span.topic}[{span.partition}] offset {span.first}"
            for span in row.offsets
        ]
        yield "messages", [f"one of {text}" if "offsets" in text or len(spans) > 1 else text for text in spans]
    if row.note is not None:
        yield "note", [row.note]
    commit = row.commit
    yield "commit", [f"{commit.id[:8]} on {commit.branch}, {format_time(commit.at)} UTC: {commit.message}"]
    if row.run is not None:
        yield "run", [row.run]
    if row.inputs:
        yield "from", [line for item in row.inputs for line in _describe_input(item, 0)]


def _describe_input(item: "InputRows", depth: int) -> Iterator[str]:
    version = f"commit {item.commit.id[:8]}" if item.commit else "a version that was never published"
    rows = format_count(item.rows, "row")
    selection = f": {rows} where {item.condition}" if item.condition else f", {rows}"
    note = f" ({item.note})" if item.note else ""
    yield f"{'  ' * depth}{item.table} at {version}{selection}{note}"
    for file in item.files:
        yield f"{'  ' * (depth + 1)}{file.name}: {format_count(file.rows, 'row')}"
    if item.files_total > len(item.files):
        yield f"{'  ' * (depth + 1)}and {format_count(item.files_total - len(item.files), 'more file')}"
    for above in item.inputs:
        yield from _describe_input(above, depth + 1)
