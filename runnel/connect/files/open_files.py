"""Open the files of a request. Each file is inspected by itself first, so that errors name the unreadable file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files import csv, jsonl, parquet
from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.csv_text.csv_header import CsvHeader, inspect_header
from runnel.connect.files.csv_text.dialect_detection import check_delimiter, check_encoding
from runnel.connect.files.file_patterns import AVRO, BINARY, CSV, JSON, JSONL, ORC, PARQUET, TEXT, XML, LocalFile
from runnel.connect.files.format_reader import ReaderOptions
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.parquet import ParquetReader
from runnel.connect.files.scratch_files import ScratchFiles, is_utf8, open_file
from runnel.errors import Mistake, RunnelError

if TYPE_CHECKING:
    import duckdb

AnyReader = CsvReader | JsonReader | ParquetReader
_BLANK_BYTES = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class UnreadableFile:
    """A file that can't be read as a whole, and why."""

    file: LocalFile
    error: RunnelError


def inspect_files(
    con: "duckdb.DuckDBPyConnection", request: LoadRequest, scratch: ScratchFiles
) -> tuple[tuple[LocalFile, ...], tuple[UnreadableFile, ...]]:
    """Return the files in the form in which they are read (converted if needed), and the unreadable ones."""
    readable_files: list[LocalFile] = []
    unreadable_files: list[UnreadableFile] = []
    for file in request.files:
        try:
            with describe_read_errors(file.name, file.path):
                prepared_file = _prepare_file(con, file, request, scratch)
        except Mistake as error:
            unreadable_files.append(UnreadableFile(file, error))
        else:
            readable_files += [prepared_file] if prepared_file is not None else []
    return tuple(readable_files), tuple(unreadable_files)


def open_reader(
    con: "duckdb.DuckDBPyConnection",
    request: LoadRequest,
    files: Sequence[LocalFile],
    scratch: ScratchFiles,
    options: ReaderOptions | None = None,
) -> AnyReader:
    """Return the reader of files that `inspect_files` returned."""
    options = options or ReaderOptions()
    reader = _create_reader(con, request, files, scratch, options)
    if options.columns is not None:
        reader.columns = options.columns
    return reader


def list_null_columns(request: LoadRequest, expected: Sequence[str]) -> Sequence[str]:
    """Return the expected columns if files may lack them: they are there then, all null."""
    return expected if request.allows_missing_columns and not request.in_place else ()


def _create_reader(
    con: "duckdb.DuckDBPyConnection",
    request: LoadRequest,
    files: Sequence[LocalFile],
    scratch: ScratchFiles,
    options: ReaderOptions,
) -> AnyReader:
    if request.format == CSV:
        return CsvReader(con, files, scratch, request.csv, list_null_columns(request, options.expected))
    if request.format in (JSONL, JSON, XML):
        requested_paths = {file.path for file in request.files}
        is_converted = any(file.path not in requested_paths for file in files)
        line_label = "record" if request.format != JSONL and is_converted else "line"
        return JsonReader(con, files, scratch, options, text_format=request.document.text_format, line_label=line_label)
    return ParquetReader(files, scratch, list_null_columns(request, options.expected), in_place=request.in_place)


def _prepare_file(
    con: "duckdb.DuckDBPyConnection", file: LocalFile, request: LoadRequest, scratch: ScratchFiles
) -> LocalFile | None:
    """Return the file, or the converted file that is read in its place; None if it has no rows."""
    if request.format == CSV and file.split is not None:  # the start of the whole file was checked before
        scratch.make_readable(file, request.csv.encoding)
        return file
    if request.format == CSV:
        check_encoding(file, request.csv)
        scratch.make_readable(file, request.csv.encoding)
        scratch.headers[file] = _read_csv_header(file, request)
        return file
    if request.format == PARQUET:
        parquet.read_footer(file)
        return file
    converted_file = _convert_file(con, file, request, scratch)
    if converted_file is not None and request.format in (JSONL, JSON, XML):
        jsonl.check_json_lines(converted_file)
        scratch.make_readable(converted_file)
    return converted_file


def _read_csv_header(file: LocalFile, request: LoadRequest) -> CsvHeader:
    """Return the header; raise if another delimiter is more likely, which only one column can show."""
    try:
        header = inspect_header(file, request.csv)
    except Mistake:
        check_delimiter(file, request.csv)
        raise
    if len(header.names) == 1:
        check_delimiter(file, request.csv)
    return header


def _convert_file(
    con: "duckdb.DuckDBPyConnection", file: LocalFile, request: LoadRequest, scratch: ScratchFiles
) -> LocalFile | None:
    from runnel.connect.files.convert import avro, binary, json, orc, text, xml

    options = request.document
    if request.format == AVRO:
        return avro.to_parquet(file, scratch)
    if request.format == ORC:
        return orc.to_parquet(file, scratch)
    if request.format == BINARY:
        return binary.to_parquet(file, scratch)
    if request.format == TEXT:
        check_encoding(file, replace(request.csv, encoding=options.encoding))
        return text.to_parquet(file, scratch, options.encoding)
    if request.format == XML:
        return xml.to_json_lines(file, scratch, options.row_tag, request.schema)
    if not is_utf8(options.encoding, file):
        file = scratch.replace_file(file, Path(scratch.make_readable(file, options.encoding)))
    else:
        scratch.make_readable(file)
    return json.to_json_lines(con, file, scratch, options.records) if request.format == JSON else file


def is_blank(file: LocalFile) -> bool:
    """Tell whether a small text file has no content; a damaged file is reported when it is read."""
    try:
        with describe_read_errors(file.name, file.path), open_file(file) as stream:
            return not stream.read(4096).strip(_BLANK_BYTES)
    except Mistake as error:
        if error.code == "LOAD_FILE_UNREADABLE":
            raise
        return False


def exclude_unreadable(files: Sequence[LocalFile], unreadable_files: Sequence[UnreadableFile]) -> tuple[LocalFile, ...]:
    """Return the readable files; a converted file has the name of the original."""
    names = {unreadable_file.file.name for unreadable_file in unreadable_files}
    return tuple(file for file in files if file.name not in names)


def find_damaged_files(
    con: "duckdb.DuckDBPyConnection", request: LoadRequest, files: Sequence[LocalFile], scratch: ScratchFiles
) -> tuple[UnreadableFile, ...]:
    """Return the files that can't be read to the end, trying each by itself."""
    import duckdb
    import pyarrow as pa

    damaged_files: list[UnreadableFile] = []
    for file in files:
        try:
            reader = open_reader(con, request, [file], scratch)
            # A hash needs the values; DuckDB counts values without decompressing them.
            columns = ", ".join(f"bit_xor(hash({column.sql_name}))" for column in reader.columns) or "count(*)"
            con.execute(f"SELECT {columns} FROM ({reader.build_select()})").fetchall()
            reader.pop_rejected()
        except (duckdb.Error, pa.ArrowException) as error:
            raise_if_out_of_memory(error, request)
            damaged_files.append(UnreadableFile(file, describe_unreadable(error, replace(request, files=(file,)))))
    return tuple(damaged_files)


def raise_if_out_of_memory(error: Exception, request: LoadRequest) -> None:
    """Raise an error of its own if memory ran out: no file is to blame for that, and none is left out."""
    import duckdb
    import pyarrow as pa

    if isinstance(error, duckdb.OutOfMemoryException | pa.ArrowMemoryError):
        what = f"there is not enough memory or disk space to read {request.files_label}: {_first_line(error)}"
        fix = (
            "give the process more memory (on executors: spark.executor.memory under [spark.conf]), "
            "or divide the files into smaller ones"
        )
        raise RunnelError("READ_OUT_OF_MEMORY", what, at=request.files[0].name, fix=fix) from error


def describe_unreadable(error: Exception, request: LoadRequest) -> Mistake:
    """Return what to tell about files that DuckDB, or Arrow, gave up on."""
    raise_if_out_of_memory(error, request)
    if request.format == CSV:
        for file in request.files:
            explanation = csv.explain_failure(file, request.csv)
            if explanation is not None:
                return explanation
    what = f"{request.files_label} can't be read as {request.format}: {_first_line(error)}"
    return Mistake(
        "LOAD_UNREADABLE", what, at=request.files[0].name, fix="look at the file; write it again if it is damaged"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).split(": ", 1)[-1].splitlines()
    return lines[0] if lines else str(error)
