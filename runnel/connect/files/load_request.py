"""The request for a load, validated as far as possible without reading the files."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.text_values import TextFormat
from runnel.declare.model.column_types import Column
from runnel.errors import Mistake
from runnel.names import TableName

STOP, DROP = "stop", "drop"


@dataclass(frozen=True)
class LoadRequest:
    """One load. `schema` are the columns that the user declared, if any.

    With `allows_missing_columns`, a declared column that files lack is null.
    """

    table: TableName
    files: tuple[LocalFile, ...]
    format: str
    branch: str = "main"
    schema: tuple[Column, ...] = ()
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    on_new_column: str = "add"
    on_bad: str = STOP
    replace: bool = False
    in_place: bool = False
    allows_missing_columns: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)
    document: DocumentOptions = field(default_factory=DocumentOptions)

    def __post_init__(self) -> None:
        if self.on_bad not in (STOP, DROP):
            raise Mistake("LOAD_OPTION", f"on_bad can't be {self.on_bad!r}", fix="use stop or drop")
        for column in self.key:
            if not column.strip():
                raise Mistake("LOAD_KEY", "the key has an empty name", fix="name columns: --key order_id")

    @property
    def files_label(self) -> str:
        """Return how errors name the files."""
        return self.files[0].name if len(self.files) == 1 else f"{self.files[0].name} and {len(self.files) - 1} more"

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.bytes for file in self.files)


def build_csv_options(option_pairs: Sequence[tuple[str, str]], names: tuple[str, ...] = ()) -> CsvOptions:
    """Return the CSV dialect that checked options describe; `names` are the columns of files without a header."""
    options = dict(option_pairs)
    return CsvOptions(
        delimiter=options.get("delimiter"),
        header=options.get("header", "true") != "false",
        null=tuple(text for name, text in option_pairs if name == "null") or "",
        quote=options.get("quote", '"'),
        encoding=options.get("encoding", "utf-8"),
        names=names,
        escape=options.get("escape"),
        comment=options.get("comment"),
        skip=int(options.get("skip", "0")),
        pad_missing=options.get("missing") == "null",
        trim=options.get("trim") == "true",
        multiline=options.get("multiline") != "false",
        text_format=_build_text_format(options),
    )


def build_document_options(option_pairs: Sequence[tuple[str, str]]) -> DocumentOptions:
    """Return how JSON and XML documents are written, as checked options describe it."""
    options = dict(option_pairs)
    return DocumentOptions(
        options.get("records"), options.get("row_tag"), options.get("encoding", "utf-8"), _build_text_format(options)
    )


def _build_text_format(options: dict[str, str]) -> TextFormat:
    return TextFormat(
        decimal=options.get("decimal", "."),
        date=options.get("date_format"),
        timestamp=options.get("timestamp_format"),
        thousands=options.get("thousands"),
        timezone=options.get("timezone"),
    )
