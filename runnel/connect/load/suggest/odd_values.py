"""Find columns that are text because of a few values: all others are numbers, dates or times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.types import StringType

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.text_values import ColumnConversion, build_conversion, guess_conversion
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.suggest.suggested_options import Caveat, escape_text
from runnel.connect.load.type_inference import InferredTypes, list_examples
from runnel.errors import plural
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name
from runnel.names import quote_value

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.files.open_files import AnyReader

_GUESSES = ("long", "double", "date", "timestamp")
_MAX_VALUES = 20
_VALUES_PER_ODD_ONE = 100


def find_odd_value_caveats(
    con: "duckdb.DuckDBPyConnection",
    reader: "AnyReader",
    choices: Sequence[ColumnChoice],
    files: Mapping[str, LocalFile],
) -> list[Caveat]:
    """Return a caveat about each column of text that at most 1 % of its values, and at most 20, keep from a type."""
    candidates = [_Candidate(choice) for choice in choices]
    if not candidates:
        return []
    expressions = [expression for candidate in candidates for expression in candidate.count_expressions]
    [counts] = con.execute(f"SELECT {', '.join(expressions)} FROM ({reader.build_select()})").fetchall()
    reader.pop_rejected()
    width = len(candidates[0].count_expressions)
    caveats = []
    for position, candidate in enumerate(candidates):
        column_counts = counts[position * width : (position + 1) * width]
        conversion, odd_count = candidate.find_likely_conversion(column_counts)
        if conversion is not None:
            odd_choice = replace(candidate.choice, conversions=(conversion,))
            caveats.append(_describe_odd_values(con, reader, odd_choice, odd_count, files))
    return caveats


def list_guessed(choices: Sequence[ColumnChoice]) -> list[ColumnChoice]:
    """Return the columns whose types depend on their values."""
    return [choice for choice in choices if choice.stored is None and "long" in choice.file_column.guesses]


def is_text(choice: ColumnChoice) -> bool:
    """Tell whether a column is text."""
    return isinstance(choice.conversions[0].kind, StringType)


class _Candidate:
    """A column of text, and the conversions that may fit nearly all of its values."""

    def __init__(self, choice: ColumnChoice) -> None:
        self.choice = choice
        column = choice.file_column
        guesses = [guess_conversion(column.sql_name, guess, column.text_format) for guess in _GUESSES]
        self.conversions = [build_conversion(column.sql_name, guess.kind, column.text_format) for guess in guesses]
        self.count_expressions = [
            f"count(nullif({column.sql_name}, ''))",
            *(
                f"count_if({conversion.bad_sql})" if conversion is not None and conversion.bad_sql else "0"
                for pair in zip(guesses, self.conversions, strict=True)
                for conversion in pair
            ),
        ]

    def find_likely_conversion(self, counts: Sequence[int]) -> tuple[ColumnConversion | None, int]:
        """Return the conversion that fits nearly all values, if one does, and how many it does not fit.

        `counts` are those of the expressions. The other values would be guessed as the same type, which is not so for
        ids with leading zeros.
        """
        total, *bad_counts = counts
        fitting = [
            (odd_count, conversion)
            for conversion, guess_count, odd_count in zip(
                self.conversions, bad_counts[::2], bad_counts[1::2], strict=True
            )
            if guess_count == odd_count and 0 < odd_count <= min(_MAX_VALUES, total // _VALUES_PER_ODD_ONE)
        ]
        odd_count, likely_conversion = min(fitting, key=lambda candidate: candidate[0], default=(0, None))
        return likely_conversion, odd_count


def _describe_odd_values(
    con: "duckdb.DuckDBPyConnection",
    reader: "AnyReader",
    choice: ColumnChoice,
    odd_count: int,
    files: Mapping[str, LocalFile],
) -> Caveat:
    example = list_examples(con, reader, InferredTypes((choice,), odd_count), files)[0]
    more = f" and {plural(odd_count - 1, 'more value')}" if odd_count > 1 else ""
    place = example.position if len(files) == 1 else f"{example.file}, {example.position}"
    what = f"`{choice.name}` is string because of {quote_value(example.value)} ({place}){more}:"
    declared = f"{quote_column_name(choice.name)} {describe_type(choice.conversions[0].kind)}"
    rows = "the row" if odd_count == 1 else "the rows"
    return Caveat(
        f'{what} --schema "{escape_text(declared)}" --on-bad drop leaves {rows} out',
        f'{what} {declared} in schema= of rn.files and on_bad="quarantine" in rn.source set {rows} aside',
    )
