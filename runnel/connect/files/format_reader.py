"""The interface of all file formats: columns, rows as SQL, and the position of a row in its file."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.types import IcebergType

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.text_values import TextFormat
from runnel.errors import Mistake
from runnel.names import quote_value

MAX_COLUMNS = 5000
MAX_NAME_LENGTH = 255


@dataclass(frozen=True)
class FileColumn:
    """A column of the files. `kind` is None for text, whose type is then chosen among `guesses`.

    `sql_name` is its name in the reader's SELECT, `json_sql_name` that of its value as JSON. `shapes` are the types of
    its objects and arrays if its values are mixed.
    """

    name: str
    sql_name: str
    kind: IcebergType | None = None
    guesses: tuple[str, ...] = ()
    is_json: bool = False  # a nested value that is still JSON
    json_sql_name: str | None = None
    shapes: tuple[IcebergType, ...] = ()
    text_format: TextFormat = field(default_factory=TextFormat)
    doc: str | None = None  # the comment of a new column


@dataclass(frozen=True)
class BadRow:
    """A row that can't be loaded, and why. `position` is such as `line 7` or `row 7`."""

    file: str
    position: str
    column: str | None
    value: str | None
    reason: str
    raw: str | None = None  # the text of the whole row, if the parser knows it

    def __str__(self) -> str:
        """Return it as one line of a report."""
        column = f", column `{self.column}`" if self.column else ""
        value = f": {quote_value(self.value)}" if self.value is not None else ""
        return f"{self.file}, {self.position}{column}{value}: {self.reason}"


@dataclass(frozen=True)
class RejectedRows:
    """Rows that the format's parser could not read at all."""

    count: int = 0
    examples: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class CsvOptions:
    """The CSV dialect. A delimiter of None depends on the file's extension; an escape of None is the quote itself."""

    delimiter: str | None = None
    header: bool = True
    null: str | tuple[str, ...] = ""
    quote: str = '"'
    encoding: str = "utf-8"
    names: tuple[str, ...] = field(default=())  # of the columns, if there is no header
    escape: str | None = None
    comment: str | None = None
    skip: int = 0  # lines before the header
    pad_missing: bool = False  # whether columns that a row lacks at its end are null
    trim: bool = False
    multiline: bool = True  # whether a quoted value may contain line ends
    text_format: TextFormat = field(default_factory=TextFormat)

    @property
    def nulls(self) -> tuple[str, ...]:
        """Return the texts that mean null."""
        return (self.null,) if isinstance(self.null, str) else self.null


@dataclass(frozen=True)
class DocumentOptions:
    """Where the rows are in a JSON or XML document, and how text is encoded."""

    records: str | None = None
    row_tag: str | None = None
    encoding: str = "utf-8"
    text_format: TextFormat = field(default_factory=TextFormat)


@dataclass(frozen=True)
class ReaderOptions:
    """How files are opened. `expected` columns exist, all null, even if no object of JSON lines has them.

    If `columns` are settled already, they are not looked for again.
    """

    expected: tuple[str, ...] = ()
    columns: tuple[FileColumn, ...] | None = None


class FormatReader(Protocol):
    """Reads opened files of one format."""

    columns: tuple[FileColumn, ...]
    must_check: bool  # whether the files have to be read once before anything is written

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order.

        Its columns: those of `columns`, by `sql_name`; `file`, the path; `broken`, why a row can't be read, or null.
        """

    def pop_rejected(self, most: int | None = ...) -> RejectedRows:
        """Return and forget the rows rejected in the last query over all rows, up to `most` examples; None is all."""

    def locate_rows(self, file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return the positions in a file of its n-th rows, counted from 1.

        Called after a query over that file alone, before what it rejected is popped.
        """


def check_column_names(names: Iterable[str], file: str) -> tuple[str, ...]:
    """Return the column names; raise if one of them can't be a column of a table."""
    column_names = tuple(names)
    names_by_lower: dict[str, str] = {}
    for position, name in enumerate(column_names, start=1):
        if not name.strip():
            raise _describe_bad_name(file, f"its column {position} has no name", "name every column in the header")
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in name):
            raise _describe_bad_name(
                file, f"the column name {quote_value(name)} has characters that can't be printed", "rename it"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise _describe_bad_name(
                file, f"the column name {quote_value(name)} has {len(name)} characters", "shorten it to 255"
            )
        if name.lower() in names_by_lower:
            problem = f"`{names_by_lower[name.lower()]}` and `{name}` are the same column: case does not count"
            raise _describe_bad_name(file, problem, "rename one of them")
        names_by_lower[name.lower()] = name
    if len(column_names) > MAX_COLUMNS:
        raise _describe_bad_name(file, f"it has {len(column_names):,} columns", f"a table has at most {MAX_COLUMNS:,}")
    return column_names


def _describe_bad_name(file: str, problem: str, fix: str) -> Mistake:
    return Mistake("LOAD_COLUMN_NAME", f"{file} can't be loaded: {problem}", at=file, fix=fix)
