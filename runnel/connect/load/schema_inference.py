"""Infer the schema of files and write it as text, as `schema=` and `--schema` take it. Writes nothing to the lake."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from runnel.connect.files.csv import check_options
from runnel.connect.files.csv_text.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import CSV, detect_format, find_files
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import describe_unreadable
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.load.column_matching import match_columns
from runnel.connect.load.file_loader import open_request
from runnel.connect.load.suggest.option_suggestion import add_suggestion, suggest_options
from runnel.connect.load.suggest.suggested_options import SuggestedOptions
from runnel.connect.load.suggest.table_layout import is_data_row
from runnel.connect.load.type_inference import InferredTypes, describe_bad_rows, infer_types
from runnel.errors import Mistake, RunnelError
from runnel.lake.iceberg.schema_diff import describe_type, quote_column_name
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.names import TableName

_ANY_TABLE = TableName("ods", "files")  # of a request that is only used to read


@dataclass(frozen=True)
class InferredSchema:
    """The columns of files, each with its name and type. `bad_rows` can't be read at all, such as ragged ones.

    `lacks_header` tells that the first line seems to be data; then the columns are `c1`, `c2` ... `suggested` are
    options with which the first file would be read better, though it can be read.
    """

    columns: tuple[tuple[str, str], ...]
    files: int
    bad_rows: int = 0
    lacks_header: bool = False
    suggested: SuggestedOptions = field(default_factory=SuggestedOptions)

    @property
    def text(self) -> str:
        """Return it as users write a schema: `id long, day date`."""
        return ", ".join(f"{quote_column_name(name)} {kind}" for name, kind in self.columns)

    def count_strings(self) -> int:
        """Return how many columns are text."""
        return sum(kind == "string" for _, kind in self.columns)


def infer_file_schema(
    patterns: Sequence[str], format_name: str | None, csv: CsvOptions, document: DocumentOptions
) -> InferredSchema:
    """Return the schema of the files that paths and globs match, from all their rows."""
    files = find_files(patterns)
    check_options(csv)
    request = LoadRequest(_ANY_TABLE, files, detect_format(files, format_name), csv=csv, document=document)
    try:
        inferred = infer_schema(request)
    except RunnelError as error:
        improved = add_suggestion(error, request, is_source=False)
        if improved is error:
            raise
        raise improved from error
    if request.format == CSV and csv.header and is_data_row([name for name, _ in inferred.columns]):
        return replace(infer_schema(replace(request, csv=replace(csv, header=False))), lacks_header=True)
    text_columns = [name for name, kind in inferred.columns if kind == "string"]
    return replace(inferred, suggested=suggest_options(request, files[0], text_columns))


def infer_schema(request: LoadRequest) -> InferredSchema:
    """Return the schema of a request's files, from all their rows. The request's own schema doesn't count."""
    with ScratchFiles() as scratch, connect_duckdb() as con:
        try:
            reader = open_request(con, request, scratch)
            choices = match_columns(reader.columns, (), None, "add", request.files_label)
            inferred = infer_types(con, reader, choices)
            _check_encoding(request, inferred)
            if inferred.dropped * 2 > inferred.row_count:  # the types of the others would mislead
                error = describe_bad_rows(con, reader, inferred, scratch.files_by_path, request.files_label)
                raise Mistake(error.code, error.what.replace("; nothing was loaded", "", 1), at=error.at, fix=error.fix)
        except (duckdb.Error, pa.ArrowException) as error:
            raise describe_unreadable(error, request) from error
    columns = tuple((choice.name, describe_type(choice.conversions[0].kind)) for choice in inferred.choices)
    return InferredSchema(columns, len(request.files), inferred.dropped)


def _check_encoding(request: LoadRequest, inferred: InferredTypes) -> None:
    """Raise if rows were left out since they are not UTF-8: the types of the others would mislead."""
    bad_row = next((row for row in inferred.rejected.examples if "not UTF-8" in row.reason), None)
    file = next((file for file in request.files if bad_row is not None and file.name == bad_row.file), None)
    if bad_row is not None and file is not None:
        at = f"{bad_row.file}:{bad_row.position.split()[-1]}"
        raise Mistake("LOAD_ENCODING", str(bad_row), at=at, fix=suggest_encoding(file))
