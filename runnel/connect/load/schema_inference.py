"""Infer the schema of files and write it as text, as `schema=` and `--schema` take it. Writes nothing to the lake."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from runnel.connect.files.csv import check_options
from runnel.connect.files.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import detect_format, find_files
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import describe_unreadable
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.iceberg_types import describe_type
from runnel.connect.load.column_matching import match_columns
from runnel.connect.load.file_loader import open_request
from runnel.connect.load.type_inference import InferredTypes, infer_types
from runnel.errors import Mistake
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.names import TableName

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_ANY_TABLE = TableName("ods", "files")  # of a request that is only used to read


@dataclass(frozen=True)
class InferredSchema:
    """The columns of files, each with its name and type. `bad_rows` can't be read at all, such as ragged ones."""

    columns: tuple[tuple[str, str], ...]
    files: int
    bad_rows: int = 0

    @property
    def text(self) -> str:
        """Return it as users write a schema: `id long, day date`."""
        return ", ".join(f"{_quote_name(name)} {kind}" for name, kind in self.columns)

    def count_strings(self) -> int:
        """Return how many columns are text."""
        return sum(kind == "string" for _, kind in self.columns)


def infer_file_schema(
    patterns: Sequence[str], format_name: str | None, csv: CsvOptions, document: DocumentOptions
) -> InferredSchema:
    """Return the schema of the files that paths and globs match, from all their rows."""
    files = find_files(patterns)
    check_options(csv)
    return infer_schema(LoadRequest(_ANY_TABLE, files, detect_format(files, format_name), csv=csv, document=document))


def infer_schema(request: LoadRequest) -> InferredSchema:
    """Return the schema of a request's files, from all their rows. The request's own schema doesn't count."""
    with ScratchFiles() as scratch, connect_duckdb() as con:
        try:
            reader = open_request(con, request, scratch)
            choices = match_columns(reader.columns, (), None, "add", request.files_label)
            inferred = infer_types(con, reader, choices)
        except (duckdb.Error, pa.ArrowException) as error:
            raise describe_unreadable(error, request) from error
    _check_encoding(request, inferred)
    columns = tuple((choice.name, _format_type(choice.conversions[0].kind)) for choice in inferred.choices)
    return InferredSchema(columns, len(request.files), inferred.dropped)


def _check_encoding(request: LoadRequest, inferred: InferredTypes) -> None:
    """Raise if rows were left out since they are not UTF-8: the types of the others would mislead."""
    bad_row = next((row for row in inferred.rejected.examples if "not UTF-8" in row.reason), None)
    file = next((file for file in request.files if bad_row is not None and file.name == bad_row.file), None)
    if bad_row is not None and file is not None:
        at = f"{bad_row.file}:{bad_row.position.split()[-1]}"
        raise Mistake("LOAD_ENCODING", str(bad_row), at=at, fix=suggest_encoding(file))


def _format_type(kind: IcebergType) -> str:
    if isinstance(kind, ListType):
        return f"array<{_format_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_format_type(kind.key_type)}, {_format_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        fields = ", ".join(f"{_quote_name(field.name)}: {_format_type(field.field_type)}" for field in kind.fields)
        return f"struct<{fields}>"
    return describe_type(kind)


def _quote_name(name: str) -> str:
    """Return a column name as a schema takes it: in backticks if it isn't a plain word."""
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"
