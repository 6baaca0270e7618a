"""Find texts such as `N/A` that stand for null in columns that are numbers, dates or times otherwise."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import StringType

from runnel.connect.files.format_reader import FormatReader
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.suggest.suggested_options import Caveat
from runnel.errors import join_names
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    import duckdb

_NULL_TEXTS = ("N/A", "n/a", "#N/A", "NA", "NaN", "nan", "NULL", "Null", "null", "None", "none", "-", "--", "?")
_LEAST_VALUES = 2  # one may be a mistake


def count_null_texts(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> dict[str, dict[str, int]]:
    """Return for each column of text how often it has each of the texts that people write for null."""
    texts = [choice for choice in choices if choice.file_column.kind is None]
    counts = [f"count_if({_build_condition(choice, text)})" for choice in texts for text in _NULL_TEXTS]
    if not counts:
        return {}
    [row] = con.execute(f"SELECT {', '.join(counts)} FROM ({reader.build_select()})").fetchall()
    reader.pop_rejected()
    width = len(_NULL_TEXTS)
    return {
        choice.name: {text: count for text, count in zip(_NULL_TEXTS, row[position * width :], strict=False) if count}
        for position, choice in enumerate(texts)
    }


def _build_condition(choice: ColumnChoice, text: str) -> str:
    """Return the SQL condition that holds for a text, unless it is a value of the column's type, as NaN of a double."""
    valid = choice.conversions[0].valid
    condition = f"{choice.file_column.sql_name} = {quote_literal(text)}"
    return f"{condition} AND NOT coalesce({valid}, false)" if valid else condition


def list_frequent_texts(counts: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the texts that a column has more than once."""
    return tuple(
        text for text in _NULL_TEXTS if any(columns.get(text, 0) >= _LEAST_VALUES for columns in counts.values())
    )


def list_useful_texts(counts: Mapping[str, Mapping[str, int]], choices: Sequence[ColumnChoice]) -> tuple[str, ...]:
    """Return the texts of columns that have another type than text if these texts are null."""
    useful_texts = {
        text
        for choice in choices
        if not _is_text(choice)
        for text, count in counts.get(choice.name, {}).items()
        if count >= _LEAST_VALUES
    }
    return tuple(text for text in _NULL_TEXTS if text in useful_texts)


def find_null_caveats(
    counts: Mapping[str, Mapping[str, int]], texts: Sequence[str], choices: Sequence[ColumnChoice]
) -> list[Caveat]:
    """Return a caveat about each text that becomes null in columns of text, too, where it may mean something."""
    caveats = []
    for text in texts:
        names = [choice.name for choice in choices if _is_text(choice) and counts.get(choice.name, {}).get(text)]
        message = f"`{text}` becomes null in {join_names(names)}, too"
        caveats += [Caveat(message, message)] if names else []
    return caveats


def _is_text(choice: ColumnChoice) -> bool:
    return isinstance(choice.conversions[0].kind, StringType)
