"""Infer a type for each column from all values, and find the rows that don't fit.

A column starts with the first conversion that a sample of rows allows; if other rows contradict it, the next conversion
is tried over all rows. So a typical load reads its files once here, and once to write them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING

from pyiceberg.types import TimestampType, TimestamptzType

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.csv_text.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import BadRow, FormatReader, RejectedRows
from runnel.connect.files.jsonl import JsonReader, explain_broken_line
from runnel.connect.files.text_values import ColumnConversion
from runnel.connect.load.column_matching import ColumnChoice
from runnel.errors import Mistake, plural
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name

if TYPE_CHECKING:
    import duckdb

SAMPLE_ROWS = 20_000
_NESTED_REASON = re.compile("not an? (struct|array|map)<")
MAX_EXAMPLES = 20


@dataclass(frozen=True)
class InferredTypes:
    """Columns with one conversion each, and the rows that can't be converted."""

    choices: tuple[ColumnChoice, ...]
    bad_count: int = 0
    rejected: RejectedRows = field(default_factory=RejectedRows)
    row_count: int = 0  # including bad rows, if the rows were read

    @property
    def dropped(self) -> int:
        """Return how many rows are left out."""
        return self.bad_count + self.rejected.count

    @property
    def good_row_sql(self) -> str:
        """Return the SQL condition that holds for good rows."""
        return f"NOT ({_bad_row_sql(self.choices)})" if self.bad_count else "broken IS NULL"


@dataclass(frozen=True)
class MisfitCounts:
    """How many values don't fit each conversion of each column, in order, and how many values each column has."""

    wrong: Mapping[str, tuple[int, ...]]
    values: Mapping[str, int]

    @classmethod
    def empty(cls, choices: Sequence[ColumnChoice]) -> "MisfitCounts":
        """Return the counts of no rows."""
        return cls(
            {choice.name: (0,) * len(choice.conversions) for choice in choices}, {choice.name: 0 for choice in choices}
        )

    def __add__(self, other: "MisfitCounts") -> "MisfitCounts":
        """Return the counts of the rows of both."""
        wrong = {
            name: tuple(map(sum, zip(counts, other.wrong[name], strict=True))) for name, counts in self.wrong.items()
        }
        return MisfitCounts(wrong, {name: count + other.values[name] for name, count in self.values.items()})


def count_misfits(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> MisfitCounts:
    """Count the misfits of every conversion at once, so that the counts of several groups of files can be added."""
    single_choices = [
        replace(choice, conversions=(conversion,)) for choice in choices for conversion in choice.conversions
    ]
    expressions = [f"count_if({_bad_value_sql(choice)} AND broken IS NULL)" for choice in single_choices]
    expressions += [f"count({choice.conversions[0].present})" for choice in choices]
    counts = con.execute(f"SELECT {', '.join(expressions)} FROM ({reader.build_select()})").fetchall()[0]
    reader.pop_rejected()
    wrong: dict[str, tuple[int, ...]] = {}
    for choice, count in zip(single_choices, counts, strict=False):
        wrong[choice.name] = (*wrong.get(choice.name, ()), count or 0)  # null if there are no rows
    values = dict(zip((choice.name for choice in choices), counts[len(single_choices) :], strict=True))
    return MisfitCounts(wrong, values)


def settle_types(choices: Sequence[ColumnChoice], counts: MisfitCounts) -> tuple[ColumnChoice, ...]:
    """Return the choices with one conversion each: the first that fits all values, else the preferred one.

    This is what `infer_types` finds step by step. A guessed column without any value is text.
    """
    return tuple(replace(choice, conversions=(_settle_conversion(choice, counts),)) for choice in choices)


def _settle_conversion(choice: ColumnChoice, counts: MisfitCounts) -> ColumnConversion:
    if choice.is_guessed and not counts.values[choice.name]:
        return choice.conversions[-1]
    fitting = (
        conversion for conversion, wrong in zip(choice.conversions, counts.wrong[choice.name], strict=True) if not wrong
    )
    return next(fitting, choice.conversions[0])


def find_bad_rows(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> InferredTypes:
    """Count the bad rows of columns with one settled conversion each."""
    if not reader.must_check and not any(_needs_check(choice) for choice in choices):
        return InferredTypes(tuple(choices))
    bad_sql = f"SELECT count_if({_bad_row_sql(choices)}) FROM ({reader.build_select()})"
    bad_count = con.execute(bad_sql).fetchall()[0][0] or 0  # null if there are no rows
    return InferredTypes(tuple(choices), bad_count, reader.pop_rejected())


def infer_types(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> InferredTypes:
    """Choose the conversion of each column and count bad rows."""
    if not reader.must_check and not any(_needs_check(choice) for choice in choices):
        return InferredTypes(tuple(choices))
    current = _drop_contradicted_guesses(con, reader, choices)
    first_conversions = {choice.name: choice.conversions[0] for choice in choices}
    while True:
        row_count, broken_count, wrong_counts, value_counts = _count_bad_values(con, reader, current)
        rejected = reader.pop_rejected()
        if isinstance(reader, CsvReader):
            reader.check_rows(row_count + rejected.count)
        next_choices = tuple(
            _choose_next_conversion(choice, wrong_counts[choice.name], value_counts[choice.name]) for choice in current
        )
        if all(new.conversions[0] == old.conversions[0] for new, old in zip(next_choices, current, strict=True)):
            break
        current = next_choices
        if not any(_needs_check(choice) for choice in current):
            wrong_counts = dict.fromkeys(wrong_counts, 0)
            break
    # Bad rows of a column that fits no conversion are reported, or dropped, with its preferred type.
    final_choices = tuple(
        replace(
            choice,
            conversions=(first_conversions[choice.name] if wrong_counts[choice.name] else choice.conversions[0],),
        )
        for choice in current
    )
    if not broken_count and not any(wrong_counts.values()):
        return InferredTypes(final_choices, 0, rejected, row_count + rejected.count)
    bad_counts = con.execute(
        f"SELECT count_if({_bad_row_sql(final_choices)}) FROM ({reader.build_select()})"
    ).fetchall()
    reader.pop_rejected()
    return InferredTypes(final_choices, bad_counts[0][0], rejected, row_count + rejected.count)


def _needs_check(choice: ColumnChoice) -> bool:
    return choice.conversions[0].bad_sql is not None or choice.required


def _drop_contradicted_guesses(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> tuple[ColumnChoice, ...]:
    """Return choices without the guesses that the first rows contradict."""
    guesses = [
        (choice, conversion)
        for choice in choices
        if choice.is_guessed
        for conversion in choice.conversions
        if conversion.bad_sql
    ]
    if not guesses:
        return tuple(choices)
    contradictions_sql = ", ".join(f"coalesce(bool_or({conversion.bad_sql}), false)" for _, conversion in guesses)
    sample = f"SELECT * FROM ({reader.build_select()}) LIMIT {SAMPLE_ROWS}"
    contradictions = con.execute(f"SELECT {contradictions_sql} FROM ({sample})").fetchall()[0]
    reader.pop_rejected()
    contradicted = {
        (choice.name, conversion) for (choice, conversion), bad in zip(guesses, contradictions, strict=True) if bad
    }
    return tuple(
        replace(
            choice,
            conversions=tuple(
                conversion for conversion in choice.conversions if (choice.name, conversion) not in contradicted
            ),
        )
        for choice in choices
    )


def _count_bad_values(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, choices: Sequence[ColumnChoice]
) -> tuple[int, int, dict[str, int], dict[str, int]]:
    """Return the numbers of rows and of broken rows and, per column, those of wrong values and of all values."""
    expressions = ["count(*)", "count_if(broken IS NOT NULL)"]
    for choice in choices:
        expressions.append(f"count_if({_bad_value_sql(choice)} AND broken IS NULL)")
        expressions.append(f"count({choice.conversions[0].present})")
    counts = con.execute(f"SELECT {', '.join(expressions)} FROM ({reader.build_select()})").fetchall()[0]
    names = [choice.name for choice in choices]
    wrong_counts, value_counts = (dict(zip(names, counts[start::2], strict=True)) for start in (2, 3))
    return counts[0], counts[1], wrong_counts, value_counts


def _choose_next_conversion(choice: ColumnChoice, wrong_count: int, value_count: int) -> ColumnChoice:
    if choice.is_guessed and not value_count:
        return replace(choice, conversions=choice.conversions[-1:])  # never a value: text
    return (
        replace(choice, conversions=choice.conversions[1:]) if wrong_count and len(choice.conversions) > 1 else choice
    )


def _bad_value_sql(choice: ColumnChoice) -> str:
    conversion = choice.conversions[0]
    conditions = [conversion.bad_sql] if conversion.bad_sql else []
    conditions += [f"{conversion.present} IS NULL"] if choice.required else []
    return "(" + (" OR ".join(conditions) or "false") + ")"


def _bad_row_sql(choices: Sequence[ColumnChoice]) -> str:
    return " OR ".join(["broken IS NOT NULL", *(_bad_value_sql(choice) for choice in choices if _needs_check(choice))])


def describe_bad_rows(
    con: "duckdb.DuckDBPyConnection",
    reader: FormatReader,
    inferred: InferredTypes,
    files: Mapping[str, LocalFile],
    files_label: str,
) -> Mistake:
    """Return the error that reports bad rows: where they are, what is wrong, and how many there are."""
    return describe_examples(list_examples(con, reader, inferred, files), inferred.dropped, files.values(), files_label)


def list_examples(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, inferred: InferredTypes, files: Mapping[str, LocalFile]
) -> list[BadRow]:
    """Return some of the bad rows, in order."""
    examples = [*inferred.rejected.examples, *_read_examples(con, reader, inferred, files, MAX_EXAMPLES)]
    return _choose_of_each_file(sorted(examples, key=_sort_key))


def describe_examples(
    bad_examples: Sequence[BadRow], total: int, files: Iterable[LocalFile], files_label: str
) -> Mistake:
    """Return the error that reports bad rows, of which some of each file are given as examples."""
    head = f"{plural(total, 'row')} of {files_label} can't be loaded; nothing was loaded"
    shown_examples = _choose_of_each_file(bad_examples)
    lines = [f"    {row}" for row in shown_examples]
    shown_rows = {(row.file, row.position) for row in shown_examples}
    if total > len(shown_rows):
        lines.append(f"    ... and {plural(total - len(shown_rows), 'more row')}")
    encoding = bool(bad_examples) and "not UTF-8" in bad_examples[0].reason
    fix = "correct them, or load the good rows only: --on-bad drop"
    mixed_row = next((row for row in bad_examples if row.column and _NESTED_REASON.match(row.reason)), None)
    if mixed_row is not None:
        fix += f"; or declare {quote_column_name(mixed_row.column or '')} as string, which keeps all its values as text"
    bad_file = next((file for file in files if encoding and file.name == bad_examples[0].file), None)
    fix = suggest_encoding(bad_file) if bad_file is not None else fix
    first_position = f"{bad_examples[0].file}:{bad_examples[0].position.split()[-1]}" if bad_examples else None
    return Mistake(
        "LOAD_ENCODING" if encoding else "LOAD_BAD_ROWS", "\n".join([head, *lines]), at=first_position, fix=fix
    )


@dataclass(frozen=True)
class FilesWithBadRows:
    """The files that have bad rows, by name; which have wrong values, and the rows that the parser rejected."""

    files: Mapping[str, LocalFile] = field(default_factory=dict)
    names_with_wrong_values: frozenset[str] = frozenset()
    rejected_rows: Mapping[str, Sequence[BadRow]] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the files."""
        return frozenset(self.files)


def _choose_of_each_file(examples: Sequence[BadRow]) -> list[BadRow]:
    """Return some examples in order, of each file the first ones, so that every file to correct is named."""
    indexes_by_file: dict[str, list[int]] = {}
    for index, row in enumerate(examples):
        indexes_by_file.setdefault(row.file, []).append(index)
    by_turns = chain.from_iterable(zip_longest(*indexes_by_file.values()))
    chosen = islice((index for index in by_turns if index is not None), MAX_EXAMPLES)
    return [examples[index] for index in sorted(chosen)]


def find_files_with_bad_rows(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, inferred: InferredTypes, files: Mapping[str, LocalFile]
) -> FilesWithBadRows:
    """Return the files that have bad rows."""
    wrong_names = {files[path].name for path in _list_bad_paths(con, reader, inferred)} if inferred.bad_count else set()
    rejected_rows: dict[str, list[BadRow]] = {}
    if inferred.rejected.count:
        con.execute(f"SELECT count(*) FROM ({reader.build_select()})").fetchall()
        for row in reader.pop_rejected(None).examples:
            rejected_rows.setdefault(row.file, []).append(row)
    names = {*wrong_names, *rejected_rows}
    bad_files = {file.name: file for file in files.values() if file.name in names}
    return FilesWithBadRows(bad_files, frozenset(wrong_names), rejected_rows)


def iterate_bad_rows(
    con: "duckdb.DuckDBPyConnection", reader: FormatReader, inferred: InferredTypes, bad_files: FilesWithBadRows
) -> Iterator[tuple[str, list[BadRow]]]:
    """Yield each file's name and its bad rows by place, one for each column that is wrong; one file after the other."""
    for name, file in sorted(bad_files.files.items()):
        rows = list(bad_files.rejected_rows.get(name, ()))
        if name in bad_files.names_with_wrong_values:
            rows += _read_file_examples(con, reader, inferred.choices, file, None)
        yield name, sorted(rows, key=_sort_key)


def _list_bad_paths(con: "duckdb.DuckDBPyConnection", reader: FormatReader, inferred: InferredTypes) -> list[str]:
    paths = con.execute(
        f"SELECT DISTINCT file FROM ({reader.build_select()}) WHERE {_bad_row_sql(inferred.choices)} ORDER BY file"
    ).fetchall()
    reader.pop_rejected()
    return [path for (path,) in paths]


def _sort_key(row: BadRow) -> tuple[str, int]:
    number = row.position.split()[-1]
    return row.file, int(number) if number.isdigit() else 0


def _read_examples(
    con: "duckdb.DuckDBPyConnection",
    reader: FormatReader,
    inferred: InferredTypes,
    files: Mapping[str, LocalFile],
    most: int,
) -> list[BadRow]:
    if not inferred.bad_count:
        return []
    examples: list[BadRow] = []
    for path in _list_bad_paths(con, reader, inferred)[:most]:
        examples += _read_file_examples(con, reader, inferred.choices, files[path], most)
    return examples


def _read_file_examples(
    con: "duckdb.DuckDBPyConnection",
    reader: FormatReader,
    choices: Sequence[ColumnChoice],
    file: LocalFile,
    most: int | None,
) -> list[BadRow]:
    checked_choices = [choice for choice in choices if _needs_check(choice)]
    columns = [
        expression
        for choice in checked_choices
        for expression in (_bad_value_sql(choice), f"CAST({choice.file_column.sql_name} AS VARCHAR)")
    ]
    numbered = f"SELECT *, row_number() OVER () AS row FROM ({reader.build_select(file)})"
    rows = con.execute(
        f"SELECT {', '.join(['row', 'broken', *columns])} FROM ({numbered}) WHERE {_bad_row_sql(choices)} "
        f"ORDER BY row LIMIT {'ALL' if most is None else most}"
    ).fetchall()
    positions = reader.locate_rows(file, [row[0] for row in rows])
    reader.pop_rejected()
    examples: list[BadRow] = []
    for row, broken, *values in rows:
        position = positions.get(row, f"row {row}")
        if broken:
            line = int(position.split()[-1])
            reason = explain_broken_line(file, line) if isinstance(reader, JsonReader) else None
            examples.append(BadRow(file.name, position, None, None, reason or broken))
            continue
        for choice, bad, value in zip(checked_choices, values[::2], values[1::2], strict=True):
            if bad:
                examples.append(
                    BadRow(file.name, position, choice.file_column.name, value, _explain_bad_value(choice, value))
                )
    return examples


def _explain_bad_value(choice: ColumnChoice, value: str | None) -> str:
    if value is None or (choice.required and value == ""):
        return "null, but the column is required"
    kind = choice.conversions[0].kind
    type_name = describe_type(kind)
    is_time = isinstance(kind, (TimestampType, TimestamptzType))
    hint = choice.file_column.text_format.explain_epoch(value) if is_time else ""
    return f"not {'an' if type_name[0] in 'aeiou' else 'a'} {type_name}{hint}"
