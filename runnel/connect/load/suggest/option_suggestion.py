"""Suggest the options that a file needs to be read, from its first rows, for errors and for schemas. Never raises.

Nothing is loaded with a suggested option: the user decides. All options that a file needs are suggested at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.csv_text.dialect_detection import detect_encoding
from runnel.connect.files.file_patterns import CSV, JSON, JSONL, TEXT, XML, LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.scratch_files import ScratchFiles, is_utf8, open_file
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.file_loader import open_request
from runnel.connect.load.suggest.document_records import find_records, find_row_tag
from runnel.connect.load.suggest.table_layout import find_layout
from runnel.connect.load.suggest.value_formats import SuggestedFormats, suggest_formats
from runnel.connect.load.type_inference import infer_types
from runnel.errors import RunnelError, plural
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name
from runnel.lake.scan.duckdb_connection import connect_duckdb

if TYPE_CHECKING:
    import duckdb

_SAMPLE_BYTES = 1 << 20
_MAX_DOCUMENT_BYTES = 8 << 20  # a JSON or XML document is read as a whole
_LINE_FORMATS = (CSV, JSONL, TEXT)
_IMPROVED_CODES = ("BAD_ROWS", "ENCODING", "CSV", "COLUMN_MISSING", "UNREADABLE", "COLUMN_NAME", "COLUMNS_UNKNOWN")
_TEXT_COLUMNS = {"line", "value"}
_UNQUOTED_FLAGS = ("skip", "format", "encoding", "records", "row_tag")


@dataclass(frozen=True)
class SuggestedOptions:
    """Options of `rn.files` that a file seems to need, and how many rows of the sample are bad even so.

    `is_ambiguous` tells that day and month of a pattern may be the other way round. `schema` are the inferred columns
    of a text file that turned out to be CSV, if its columns are not declared.
    """

    options: tuple[tuple[str, str], ...] = ()
    bad_rows: int = 0
    is_ambiguous: bool = False
    schema: str | None = None

    @property
    def as_keywords(self) -> str:
        """Return them as `rn.files` takes them: `delimiter=";", skip=1`."""
        return ", ".join(_format_keyword(name, value) for name, value in self.options)

    @property
    def as_flags(self) -> str:
        """Return them as commands take them: `--delimiter ";" --skip 1`."""
        return " ".join(_format_flag(name, value) for name, value in self.options)


def suggest_options(request: LoadRequest, file: LocalFile) -> SuggestedOptions:
    """Return the options that one of a request's files needs besides those of the request."""
    try:
        with temp_dirs.create_scoped("sample") as folder:
            sample = sample_file(file, request.format, Path(folder))
            return _suggest_for_sample(request, sample) if sample is not None else SuggestedOptions()
    except Exception:  # whatever is wrong with the file: the error that the suggestion is for says it
        return SuggestedOptions()


def add_suggestion(error: RunnelError, request: LoadRequest, *, is_source: bool) -> RunnelError:
    """Return the error with a fix that names every option that the file needs, if they are more than it names."""
    if error.code.partition("_")[2] not in _IMPROVED_CODES or error.at is None:
        return error
    name = error.at.rpartition(":")[0] or error.at
    file = next((file for file in request.files if file.name in (name, error.at)), request.files[0])
    suggested = suggest_options(request, file)
    if all(_format_flag(*option) in (error.fix or "") for option in suggested.options):
        return error
    described = describe_suggestion(suggested, is_source=is_source)
    improved = type(error)(error.code, error.what, at=error.at, fix=described)
    improved.others = error.others
    return improved


def describe_suggestion(suggested: SuggestedOptions, *, is_source: bool) -> str:
    """Return suggested options as a fix."""
    schema = f', schema="{escape_text(suggested.schema)}"' if suggested.schema else ""
    fix = f"add {suggested.as_keywords}{schema} to rn.files" if is_source else f"add {suggested.as_flags}"
    if suggested.is_ambiguous:
        fix += "; if the month comes first, exchange day and month"
    if suggested.bad_rows:
        policy = 'on_bad="drop" or on_bad="quarantine" to rn.source' if is_source else "--on-bad drop"
        verb = "is" if suggested.bad_rows == 1 else "are"
        fix += f"; {plural(suggested.bad_rows, 'row')} {verb} bad even so: correct them, or add {policy}"
    return fix


def apply_options(request: LoadRequest, options: tuple[tuple[str, str], ...]) -> LoadRequest:
    """Return a request with more options."""
    values = dict(options)
    csv, document = request.csv, request.document
    text_format = replace(
        csv.text_format if request.format == CSV else document.text_format,
        **{field: values[name] for name, field in _TEXT_FORMAT_FIELDS.items() if name in values},
    )
    csv = replace(
        csv,
        delimiter=values.get("delimiter", csv.delimiter),
        encoding=values.get("encoding", csv.encoding),
        skip=int(values.get("skip", csv.skip)),
        header=csv.header and "header" not in values,
        text_format=text_format,
    )
    document = replace(
        document,
        records=values.get("records", document.records),
        row_tag=values.get("row_tag", document.row_tag),
        encoding=values.get("encoding", document.encoding),
        text_format=text_format,
    )
    return replace(request, format=values.get("format", request.format), csv=csv, document=document)


_TEXT_FORMAT_FIELDS = {
    "decimal": "decimal",
    "thousands": "thousands",
    "date_format": "date",
    "timestamp_format": "timestamp",
}


def _suggest_for_sample(request: LoadRequest, sample: LocalFile) -> SuggestedOptions:
    request = replace(request, files=(sample,))
    options: tuple[tuple[str, str], ...] = ()
    encoding = detect_encoding(Path(sample.path).read_bytes()) if request.format != XML else None  # XML names its own
    if encoding is not None and is_utf8(request.csv.encoding, sample) and is_utf8(request.document.encoding, sample):
        if not encoding:
            return SuggestedOptions()
        options = (("encoding", encoding),)
    if request.format in (CSV, TEXT):
        names = tuple(column.name for column in request.schema)
        is_text = request.format == TEXT
        if not is_text or (not set(map(str.lower, names)) <= _TEXT_COLUMNS) or "utf" in (encoding or ""):
            layout = find_layout(sample, apply_options(request, options).csv, names, is_text=is_text)
            options += (("format", CSV), *layout) if is_text and layout else layout
    options += _suggest_rows(request, sample)
    return _suggest_values(request, options)


def _suggest_rows(request: LoadRequest, sample: LocalFile) -> tuple[tuple[str, str], ...]:
    """Return the option that names the rows of a document, unless its own top level has the declared columns."""
    if request.format == JSON and request.document.records is None:
        records = find_records(sample, request.document.encoding, [column.name for column in request.schema])
        return (("records", records),) if records else ()
    if request.format == XML and request.document.row_tag is None:
        row_tag = find_row_tag(sample, [column.name for column in request.schema])
        return (("row_tag", row_tag),) if row_tag else ()
    return ()


def _suggest_values(request: LoadRequest, options: tuple[tuple[str, str], ...]) -> SuggestedOptions:
    with ScratchFiles() as scratch, connect_duckdb() as con:
        try:
            formats = _suggest_formats(con, apply_options(request, options), scratch)
        except RunnelError:  # such as a column that the file lacks
            return SuggestedOptions(options)
        options += formats.options
        changed_request = apply_options(request, options)
        reader = open_request(con, changed_request, scratch)
        choices = match_columns(reader.columns, request.schema, None, "add", request.files_label)
        inferred = infer_types(con, reader, choices)
        is_new_csv = ("format", CSV) in options and not request.schema
        schema = format_schema(inferred.choices) if is_new_csv else None
        return SuggestedOptions(options, inferred.dropped, formats.is_ambiguous, schema)


def _suggest_formats(con: "duckdb.DuckDBPyConnection", request: LoadRequest, scratch: ScratchFiles) -> SuggestedFormats:
    reader = open_request(con, request, scratch)
    choices = match_columns(reader.columns, request.schema, None, "add", request.files_label)
    inferred = infer_types(con, reader, choices)
    declared = {column.name.lower() for column in request.schema}
    return suggest_formats(
        con,
        reader,
        [(choice, choice.name.lower() in declared) for choice in inferred.choices],
        has_number_options=request.format in (CSV, XML),
    )


def sample_file(file: LocalFile, format_name: str, folder: Path) -> LocalFile | None:
    """Return a decompressed copy of the first lines of a file; None if it is too large to look into."""
    limit = _SAMPLE_BYTES if format_name in _LINE_FORMATS else _MAX_DOCUMENT_BYTES
    with open_file(file) as stream:
        head = stream.read(limit)
        is_complete = not stream.read(1)
    if not is_complete:
        encoding = detect_encoding(head) or "utf-8"
        text = head.decode(encoding, errors="ignore") if encoding.startswith(("utf-16", "utf-32")) else None
        if format_name not in _LINE_FORMATS or b"\n" not in head:
            return None
        head = text[: text.rindex("\n") + 1].encode(encoding) if text else head[: head.rindex(b"\n") + 1]
    path = folder / f"sample{file.extension}"
    path.write_bytes(head)
    return replace(file, path=str(path), bytes=len(head), modified_at=path.stat().st_mtime)


def format_schema(choices: Sequence[ColumnChoice]) -> str:
    """Return columns as users write a schema: `id long, day date`."""
    return ", ".join(
        f"{quote_column_name(choice.name)} {describe_type(choice.conversions[0].kind)}" for choice in choices
    )


def escape_text(text: str) -> str:
    """Return a text as it stands between double quotes in Python."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")


def _format_keyword(name: str, value: str) -> str:
    if name == "header":
        return "header=False"
    return f"{name}={value}" if name == "skip" else f'{name}="{escape_text(value)}"'


def _format_flag(name: str, value: str) -> str:
    if name == "header":
        return "--no-header"
    flag = f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if name in _UNQUOTED_FLAGS else f'{flag} "{escape_text(value)}"'
