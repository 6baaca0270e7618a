"""What every format gives to a load: its columns, its rows as SQL, and where a row stands in its file."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.types import IcebergType

from runnel.connect.files.file_patterns import File
from runnel.connect.files.text_values import Writing
from runnel.errors import Mistake
from runnel.names import shown

MOST_COLUMNS = 5000
MOST_NAME = 255


@dataclass(frozen=True)
class Incoming:
    """A column of the files. `kind` is None for text, whose type is then chosen among `guesses`.

    `sql` is its name among the reader's rows, `raw` that of its value as JSON. `shapes` are the types of its objects
    and its arrays, where not all of its values have one.
    """

    name: str
    sql: str
    kind: IcebergType | None = None
    guesses: tuple[str, ...] = ()
    json: bool = False  # a nested value that is still JSON
    raw: str | None = None
    shapes: tuple[IcebergType, ...] = ()
    writing: Writing = field(default_factory=Writing)


@dataclass(frozen=True)
class BadRow:
    """A row that can't be loaded, and why. `place` is `line 7` or `row 7`."""

    file: str
    place: str
    column: str | None
    value: str | None
    reason: str
    raw: str | None = None  # the text of the whole row, where the parser knows it

    def __str__(self) -> str:
        """Return it as one line of a report."""
        column = f", column `{self.column}`" if self.column else ""
        value = f": {shown(self.value)}" if self.value is not None else ""
        return f"{self.file}, {self.place}{column}{value}: {self.reason}"


@dataclass(frozen=True)
class Rejected:
    """Rows that the format's parser could not read at all."""

    count: int = 0
    examples: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class CsvOptions:
    """How CSV is written. A delimiter of None is by the file's ending; an escape of None is the quote itself."""

    delimiter: str | None = None
    header: bool = True
    null: str | tuple[str, ...] = ""
    quote: str = '"'
    encoding: str = "utf-8"
    names: tuple[str, ...] = field(default=())  # of the columns where there is no header
    escape: str | None = None
    comment: str | None = None
    skip: int = 0  # lines before the header
    pads: bool = False  # whether a row may lack columns at its end, which are null then
    trim: bool = False
    writing: Writing = field(default_factory=Writing)

    @property
    def nulls(self) -> tuple[str, ...]:
        """Return the texts that stand for no value."""
        return (self.null,) if isinstance(self.null, str) else self.null


@dataclass(frozen=True)
class DocumentOptions:
    """Where the rows stand in JSON or XML, and how text is encoded."""

    records: str | None = None
    row_tag: str | None = None
    encoding: str = "utf-8"
    writing: Writing = field(default_factory=Writing)


class Reader(Protocol):
    """Files of one format, opened."""

    columns: tuple[Incoming, ...]
    must_check: bool  # whether the files have to be read once before anything is written

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order.

        Its columns: those of `columns`, by their `sql`; `file`, the path; `broken`, why a row is none, usually null.
        """

    def rejected(self, most: int | None = ...) -> Rejected:
        """Return what the parser rejected in the last query over all rows, with up to `most` examples; None is all."""

    def places(self, file: File, rows: Sequence[int]) -> dict[int, str]:
        """Return where the n-th rows of a file, counted from 1, stand in it."""


def checked_names(names: Iterable[str], file: str) -> tuple[str, ...]:
    """Return the names of columns, refusing what no table could have."""
    found = tuple(names)
    seen: dict[str, str] = {}
    for position, name in enumerate(found, start=1):
        if not name.strip():
            raise _refused(file, f"its column {position} has no name", "name every column in the header")
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in name):
            raise _refused(file, f"the column name {shown(name)} has characters that can't be printed", "rename it")
        if len(name) > MOST_NAME:
            raise _refused(file, f"the column name {shown(name)} has {len(name)} characters", "shorten it to 255")
        if name.lower() in seen:
            twice = f"`{seen[name.lower()]}` and `{name}` are the same column: case does not count"
            raise _refused(file, twice, "rename one of them")
        seen[name.lower()] = name
    if len(found) > MOST_COLUMNS:
        raise _refused(file, f"it has {len(found):,} columns", f"a table has at most {MOST_COLUMNS:,}")
    return found


def _refused(file: str, what: str, fix: str) -> Mistake:
    return Mistake("LOAD_COLUMN_NAME", f"{file} can't be loaded: {what}", at=file, fix=fix)
