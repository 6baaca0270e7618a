"""Look at all values once, to choose a type for each column and to find the rows that fit none.

A column starts with the first way to store it that a sample allows; what the rest of the rows contradicts moves on to
the next way, and is looked at again. So the usual load reads its files once here, and once to write them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import BadRow, Reader, Rejected
from runnel.connect.files.jsonl import JsonReader, why_broken
from runnel.connect.iceberg_types import called
from runnel.connect.load.column_matching import Choice
from runnel.errors import Mistake

if TYPE_CHECKING:
    import duckdb

SAMPLE_ROWS = 20_000
MOST_SHOWN = 20


@dataclass(frozen=True)
class Settled:
    """Columns with one way to store each, and the rows that can't be stored that way."""

    choices: tuple[Choice, ...]
    bad: int = 0
    rejected: Rejected = field(default_factory=Rejected)

    @property
    def dropped(self) -> int:
        """Return how many rows are left out."""
        return self.bad + self.rejected.count

    @property
    def condition(self) -> str:
        """Return the SQL of whether a row is good."""
        return f"NOT ({_any_bad(self.choices)})" if self.bad else "broken IS NULL"


def settle(con: "duckdb.DuckDBPyConnection", reader: Reader, choices: Sequence[Choice]) -> Settled:
    """Return how each column is stored."""
    if not reader.must_check and not any(_unproven(choice) for choice in choices):
        return Settled(tuple(choices))
    current = _sampled(con, reader, choices)
    firsts = {choice.name: choice.tries[0] for choice in choices}
    while True:
        broken, wrong, filled = _counted(con, reader, current)
        rejected = reader.rejected()
        moved = tuple(_next(choice, wrong[choice.name], filled[choice.name]) for choice in current)
        if all(new.tries[0] == old.tries[0] for new, old in zip(moved, current, strict=True)):
            break
        current = moved
        if not any(_unproven(choice) for choice in current):
            wrong = dict.fromkeys(wrong, 0)
            break
    # A column that fits in no way is reported, or dropped, against the type that it has.
    final = tuple(
        replace(choice, tries=(firsts[choice.name] if wrong[choice.name] else choice.tries[0],)) for choice in current
    )
    if not broken and not any(wrong.values()):
        return Settled(final, 0, rejected)
    counted = con.execute(f"SELECT count_if({_any_bad(final)}) FROM ({reader.rows()})").fetchall()
    reader.rejected()
    return Settled(final, counted[0][0], rejected)


def _unproven(choice: Choice) -> bool:
    return choice.tries[0].bad is not None or choice.required


def _sampled(con: "duckdb.DuckDBPyConnection", reader: Reader, choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return choices without the guesses that the first rows contradict."""
    guesses = [(choice, way) for choice in choices if choice.guessed for way in choice.tries if way.bad]
    if not guesses:
        return tuple(choices)
    counts = ", ".join(f"coalesce(bool_or({way.bad}), false)" for _, way in guesses)
    sample = f"SELECT * FROM ({reader.rows()}) LIMIT {SAMPLE_ROWS}"
    found = con.execute(f"SELECT {counts} FROM ({sample})").fetchall()[0]
    reader.rejected()
    out = {(choice.name, way) for (choice, way), bad in zip(guesses, found, strict=True) if bad}
    return tuple(
        replace(choice, tries=tuple(way for way in choice.tries if (choice.name, way) not in out)) for choice in choices
    )


def _counted(
    con: "duckdb.DuckDBPyConnection", reader: Reader, choices: Sequence[Choice]
) -> tuple[int, dict[str, int], dict[str, int]]:
    """Return the number of broken rows, and per column of values that don't fit and of values at all."""
    wanted = ["count_if(broken IS NOT NULL)"]
    for choice in choices:
        wanted.append(f"count_if({_bad(choice)} AND broken IS NULL)")
        wanted.append(f"count({choice.tries[0].present})")
    found = con.execute(f"SELECT {', '.join(wanted)} FROM ({reader.rows()})").fetchall()[0]
    names = [choice.name for choice in choices]
    return found[0], dict(zip(names, found[1::2], strict=True)), dict(zip(names, found[2::2], strict=True))


def _next(choice: Choice, wrong: int, filled: int) -> Choice:
    if choice.guessed and not filled:
        return replace(choice, tries=choice.tries[-1:])  # never a value: text
    return replace(choice, tries=choice.tries[1:]) if wrong and len(choice.tries) > 1 else choice


def _bad(choice: Choice) -> str:
    way = choice.tries[0]
    conditions = [way.bad] if way.bad else []
    conditions += [f"{way.present} IS NULL"] if choice.required else []
    return "(" + (" OR ".join(conditions) or "false") + ")"


def _any_bad(choices: Sequence[Choice]) -> str:
    return " OR ".join(["broken IS NOT NULL", *(_bad(choice) for choice in choices if _unproven(choice))])


def refuse(
    con: "duckdb.DuckDBPyConnection", reader: Reader, settled: Settled, files: dict[str, File], of: str
) -> Mistake:
    """Return the error that reports bad rows: where they are, what is wrong, and how many there are."""
    shown = sorted([*settled.rejected.examples, *_examples(con, reader, settled, files, MOST_SHOWN)], key=_order)
    total = settled.dropped
    head = f"{total:,} row{'s' if total != 1 else ''} of {of} can't be loaded; nothing was loaded"
    lines = [f"    {row}" for row in shown[:MOST_SHOWN]]
    if total > len(lines):
        lines.append(f"    ... and {total - len(lines):,} more")
    encoding = bool(shown) and "not UTF-8" in shown[0].reason
    fix = "correct them, or load the good rows only: --on-bad drop"
    fix = "name the encoding, such as --encoding latin-1" if encoding and not isinstance(reader, JsonReader) else fix
    first = f"{shown[0].file}:{shown[0].place.split()[-1]}" if shown else None
    return Mistake("LOAD_ENCODING" if encoding else "LOAD_BAD_ROWS", "\n".join([head, *lines]), at=first, fix=fix)


def bad_rows(
    con: "duckdb.DuckDBPyConnection", reader: Reader, settled: Settled, files: dict[str, File]
) -> list[BadRow]:
    """Return every bad row, one for each column that is wrong, by file and place."""
    found = _examples(con, reader, settled, files, None)
    if settled.rejected.count:
        con.execute(f"SELECT count(*) FROM ({reader.rows()})").fetchall()
        found += reader.rejected(None).examples
    return sorted(found, key=_order)


def files_with_bad_rows(
    con: "duckdb.DuckDBPyConnection", reader: Reader, settled: Settled, files: dict[str, File]
) -> frozenset[str]:
    """Return the names of the files of which rows are left out."""
    names: set[str] = set()
    if settled.bad:
        names |= {files[path].name for path in _bad_paths(con, reader, settled)}
    if settled.rejected.count:
        con.execute(f"SELECT count(*) FROM ({reader.rows()})").fetchall()
        names |= {row.file for row in reader.rejected(None).examples}
    return frozenset(names)


def _bad_paths(con: "duckdb.DuckDBPyConnection", reader: Reader, settled: Settled) -> list[str]:
    paths = con.execute(
        f"SELECT DISTINCT file FROM ({reader.rows()}) WHERE {_any_bad(settled.choices)} ORDER BY file"
    ).fetchall()
    reader.rejected()
    return [path for (path,) in paths]


def _order(row: BadRow) -> tuple[str, int]:
    number = row.place.split()[-1]
    return row.file, int(number) if number.isdigit() else 0


def _examples(
    con: "duckdb.DuckDBPyConnection", reader: Reader, settled: Settled, files: dict[str, File], most: int | None
) -> list[BadRow]:
    if not settled.bad:
        return []
    found: list[BadRow] = []
    for path in _bad_paths(con, reader, settled):
        left = None if most is None else most - len(found)
        if left is None or left > 0:
            found += _examples_of(con, reader, settled.choices, files[path], left)
    return found


def _examples_of(
    con: "duckdb.DuckDBPyConnection", reader: Reader, choices: Sequence[Choice], file: File, most: int | None
) -> list[BadRow]:
    unproven = [choice for choice in choices if _unproven(choice)]
    columns = [part for choice in unproven for part in (_bad(choice), f"CAST({choice.incoming.sql} AS VARCHAR)")]
    numbered = f"SELECT *, row_number() OVER () AS row FROM ({reader.rows(file)})"
    rows = con.execute(
        f"SELECT {', '.join(['row', 'broken', *columns])} FROM ({numbered}) WHERE {_any_bad(choices)} "
        f"ORDER BY row LIMIT {'ALL' if most is None else most}"
    ).fetchall()
    reader.rejected()
    places = reader.places(file, [row[0] for row in rows])
    found: list[BadRow] = []
    for row, broken, *values in rows:
        place = places.get(row, f"row {row}")
        if broken:
            line = int(place.split()[-1])
            reason = why_broken(file, line) if isinstance(reader, JsonReader) else None
            found.append(BadRow(file.name, place, None, None, reason or broken))
            continue
        for choice, bad, value in zip(unproven, values[::2], values[1::2], strict=True):
            if bad:
                found.append(BadRow(file.name, place, choice.incoming.name, value, _reason(choice, value)))
    return found


def _reason(choice: Choice, value: str | None) -> str:
    if value is None or (choice.required and value == ""):
        return "null, but the column is required"
    return f"not {'an' if called(choice.tries[0].kind)[0] in 'aeiou' else 'a'} {called(choice.tries[0].kind)}"
