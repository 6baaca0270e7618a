"""Suggest the options that a file needs to be read, from its first rows, for errors and for schemas. Never raises.

Nothing is loaded with a suggested option: the user decides. All options that a file needs are suggested at once.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.files.csv_text.dialect_detection import detect_encoding
from runnel.connect.files.file_patterns import CSV, JSON, TEXT, XML, LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.scratch_files import ScratchFiles, is_utf8
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.file_loader import open_request
from runnel.connect.load.suggest.document_records import find_records, find_row_tag
from runnel.connect.load.suggest.file_sample import FileSample, take_sample
from runnel.connect.load.suggest.null_texts import (
    count_null_texts,
    find_null_caveats,
    list_frequent_texts,
    list_useful_texts,
)
from runnel.connect.load.suggest.odd_values import find_odd_value_caveats, is_text, list_guessed
from runnel.connect.load.suggest.suggested_options import Caveat, Options, SuggestedOptions, escape_text, format_flag
from runnel.connect.load.suggest.table_layout import find_layout
from runnel.connect.load.suggest.total_line import TotalLine, find_total_after_sample, find_total_line
from runnel.connect.load.suggest.value_formats import SuggestedFormats, find_dot_caveats, suggest_formats
from runnel.connect.load.type_inference import InferredTypes, infer_types
from runnel.errors import RunnelError, plural
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name
from runnel.lake.scan.duckdb_connection import connect_duckdb

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.files.open_files import AnyReader

_IMPROVED_CODES = ("BAD_ROWS", "ENCODING", "CSV", "COLUMN_MISSING", "UNREADABLE", "COLUMN_NAME", "COLUMNS_UNKNOWN")
_TEXT_COLUMNS = {"line", "value"}
_MAX_SEARCHED_BYTES = 256 << 20
_MONTH_CAVEAT = "if the month comes first, exchange day and month"


def suggest_options(request: LoadRequest, file: LocalFile, text_columns: Collection[str] = ()) -> SuggestedOptions:
    """Return the options that one of a request's files needs besides those of the request.

    `text_columns` are those that all rows of all files made text, if they were read: then files of a moderate size are
    searched for the values that did it.
    """
    try:
        with temp_dirs.create_scoped("sample") as folder:
            sample = take_sample(file, request.format, Path(folder))
            return _suggest_for_sample(request, sample, text_columns) if sample is not None else SuggestedOptions()
    except Exception:  # whatever is wrong with the file: the error that the suggestion is for says it
        return SuggestedOptions()


def add_suggestion(error: RunnelError, request: LoadRequest, *, is_source: bool) -> RunnelError:
    """Return the error with a fix that names every option that the file needs, and what only the user can tell."""
    if error.code.partition("_")[2] not in _IMPROVED_CODES or error.at is None:
        return error
    name = error.at.rpartition(":")[0] or error.at
    file = next((file for file in request.files if file.name in (name, error.at)), request.files[0])
    suggested = suggest_options(request, file)
    caveats = suggested.list_caveats(is_source=is_source)
    if not all(format_flag(*option) in (error.fix or "") for option in suggested.options):
        described = describe_suggestion(suggested, is_source=is_source)
    elif caveats and error.fix:
        described = "; ".join([error.fix, *caveats])
    else:
        return error
    improved = type(error)(error.code, error.what, at=error.at, fix=described)
    improved.others = error.others
    return improved


def describe_suggestion(suggested: SuggestedOptions, *, is_source: bool) -> str:
    """Return suggested options as a fix."""
    schema = f', schema="{escape_text(suggested.schema)}"' if suggested.schema else ""
    fix = f"add {suggested.as_keywords}{schema} to rn.files" if is_source else f"add {suggested.as_flags}"
    fix = "; ".join([fix, *suggested.list_caveats(is_source=is_source)])
    if suggested.bad_rows:
        policy = 'on_bad="drop" or on_bad="quarantine" to rn.source' if is_source else "--on-bad drop"
        verb = "is" if suggested.bad_rows == 1 else "are"
        fix += f"; {plural(suggested.bad_rows, 'row')} {verb} bad even so: correct them, or add {policy}"
    return fix


def apply_options(request: LoadRequest, options: Options) -> LoadRequest:
    """Return a request with more options."""
    values = {name: value for name, value in options if isinstance(value, str)}
    csv, document = request.csv, request.document
    text_format = replace(
        csv.text_format if request.format == CSV else document.text_format,
        **{field: values[name] for name, field in _TEXT_FORMAT_FIELDS.items() if name in values},
    )
    nulls = next((value for name, value in options if name == "null" and isinstance(value, tuple)), csv.null)
    csv = replace(
        csv,
        null=nulls,
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


def _suggest_for_sample(request: LoadRequest, sample: FileSample, text_columns: Collection[str]) -> SuggestedOptions:
    file, all_files = sample.file, request.files
    request = replace(request, files=(file,))
    options: Options = ()
    encoding = detect_encoding(Path(file.path).read_bytes()) if request.format != XML else None  # XML names its own
    if encoding is not None and is_utf8(request.csv.encoding, file) and is_utf8(request.document.encoding, file):
        if not encoding:
            return SuggestedOptions()
        options = (("encoding", encoding),)
    if request.format in (CSV, TEXT):
        names = tuple(column.name for column in request.schema)
        is_text = request.format == TEXT
        if not is_text or (not set(map(str.lower, names)) <= _TEXT_COLUMNS) or "utf" in (encoding or ""):
            layout = find_layout(file, apply_options(request, options).csv, names, is_text=is_text)
            options += (("format", CSV), *layout) if is_text and layout else layout
    options += _suggest_rows(request, file)
    suggested, late_choices = _suggest_values(request, options, sample, text_columns)
    all_request = replace(apply_options(request, suggested.options), files=all_files)
    if not late_choices or all_request.bytes > _MAX_SEARCHED_BYTES:
        return suggested
    with ScratchFiles() as scratch, connect_duckdb() as con:
        reader = open_request(con, all_request, scratch)
        late_caveats = find_odd_value_caveats(con, reader, late_choices, scratch.files_by_path)
    return replace(suggested, caveats=(*suggested.caveats, *late_caveats))


def _suggest_rows(request: LoadRequest, sample: LocalFile) -> Options:
    """Return the option that names the rows of a document, unless its own top level has the declared columns."""
    if request.format == JSON and request.document.records is None:
        records = find_records(sample, request.document.encoding, [column.name for column in request.schema])
        return (("records", records),) if records else ()
    if request.format == XML and request.document.row_tag is None:
        row_tag = find_row_tag(sample, [column.name for column in request.schema])
        return (("row_tag", row_tag),) if row_tag else ()
    return ()


def _suggest_values(
    request: LoadRequest, options: Options, sample: FileSample, text_columns: Collection[str]
) -> tuple[SuggestedOptions, list[ColumnChoice]]:
    """Return the suggestion, and the columns that are text only because of rows beyond the sample."""
    with ScratchFiles() as scratch, connect_duckdb() as con:
        try:
            null_counts = _count_null_texts(con, apply_options(request, options), scratch)
            nulls = _format_nulls(list_frequent_texts(null_counts))
            formats = _suggest_formats(con, apply_options(request, (*options, *nulls)), scratch)
        except RunnelError:  # such as a column that the file lacks
            return SuggestedOptions(options), []
        changed_request = apply_options(request, (*options, *nulls, *formats.options))
        reader, inferred = _infer_types(con, changed_request, scratch)
        null_texts = list_useful_texts(null_counts, inferred.choices) if nulls else ()
        options += (*_format_nulls(null_texts), *formats.options)
        if _format_nulls(null_texts) != nulls:
            changed_request = apply_options(request, options)
            reader, inferred = _infer_types(con, changed_request, scratch)
        is_new_csv = ("format", CSV) in options and not request.schema
        schema = format_schema(inferred.choices) if is_new_csv else None
        month_caveats = (Caveat(_MONTH_CAVEAT, _MONTH_CAVEAT),) if formats.is_ambiguous else ()
        null_caveats = find_null_caveats(null_counts, null_texts, inferred.choices)
        reading = _SampleReading(con, scratch, changed_request, reader, inferred.choices)
        total = reading.find_total(sample)
        guessed_choices = reading.list_guessed_choices(total)
        return SuggestedOptions(
            options,
            inferred.dropped,
            (*month_caveats, *null_caveats, *reading.find_caveats(guessed_choices)),
            schema,
            total.build_caveat() if total is not None else None,
        ), [choice for choice in guessed_choices if not is_text(choice) and choice.name in text_columns]


@dataclass(frozen=True)
class _SampleReading:
    """A sample that was read with all suggested options."""

    con: "duckdb.DuckDBPyConnection"
    scratch: ScratchFiles
    request: LoadRequest
    reader: "AnyReader"
    choices: tuple[ColumnChoice, ...]

    def find_total(self, sample: FileSample) -> TotalLine | None:
        """Return a total in the last line of the file, if its columns are not declared."""
        if self.request.format != CSV or self.request.schema:
            return None
        if sample.is_complete:
            return find_total_line(self.con, self.request, self.scratch, self.choices, must_be_named=True)
        if sample.last_line is None:
            return None
        return find_total_after_sample(self.con, self.request, self.reader, self.choices, sample.last_line)

    def list_guessed_choices(self, total: TotalLine | None) -> list[ColumnChoice]:
        """Return the columns whose types depend on rows, and not only on whether the last line is one."""
        declared_names = [column.name for column in self.request.schema]
        settled_names = {*declared_names, *(total.deciding_names if total is not None else ())}
        return [choice for choice in list_guessed(self.choices) if choice.name not in settled_names]

    def find_caveats(self, guessed_choices: Sequence[ColumnChoice]) -> list[Caveat]:
        text_choices = [choice for choice in guessed_choices if is_text(choice)]
        return [
            *find_dot_caveats(self.con, self.request, self.reader, self.choices),
            *find_odd_value_caveats(self.con, self.reader, text_choices, self.scratch.files_by_path),
        ]


def _count_null_texts(
    con: "duckdb.DuckDBPyConnection", request: LoadRequest, scratch: ScratchFiles
) -> dict[str, dict[str, int]]:
    """Return how often columns have texts that may mean null; none if the request says which texts do."""
    if request.format != CSV or request.csv.nulls != ("",):
        return {}
    reader = open_request(con, request, scratch)
    choices = match_columns(reader.columns, request.schema, None, "add", request.files_label)
    return count_null_texts(con, reader, choices)


def _format_nulls(texts: tuple[str, ...]) -> Options:
    return (("null", ("", *texts)),) if texts else ()


def _infer_types(
    con: "duckdb.DuckDBPyConnection", request: LoadRequest, scratch: ScratchFiles
) -> "tuple[AnyReader, InferredTypes]":
    reader = open_request(con, request, scratch)
    choices = match_columns(reader.columns, request.schema, None, "add", request.files_label)
    return reader, infer_types(con, reader, choices)


def _suggest_formats(con: "duckdb.DuckDBPyConnection", request: LoadRequest, scratch: ScratchFiles) -> SuggestedFormats:
    reader, inferred = _infer_types(con, request, scratch)
    declared = {column.name.lower() for column in request.schema}
    return suggest_formats(
        con,
        reader,
        [(choice, choice.name.lower() in declared) for choice in inferred.choices],
        has_number_options=request.format in (CSV, XML),
    )


def format_schema(choices: Sequence[ColumnChoice]) -> str:
    """Return columns as users write a schema: `id long, day date`."""
    return ", ".join(
        f"{quote_column_name(choice.name)} {describe_type(choice.conversions[0].kind)}" for choice in choices
    )
