"""Open the files of a request: each looked into by itself first, so that one which can't be read is known by name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files import csv, jsonl, parquet
from runnel.connect.files.compression import whole
from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import AVRO, BINARY, CSV, JSON, JSONL, ORC, PARQUET, TEXT, XML, File
from runnel.connect.files.jsonl import JsonReader
from runnel.connect.files.load_request import Request
from runnel.connect.files.parquet import ParquetReader
from runnel.connect.files.scratch_files import Scratch, is_utf8, opened
from runnel.errors import Mistake, RunnelError

if TYPE_CHECKING:
    import duckdb

AnyReader = CsvReader | JsonReader | ParquetReader
_BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class Unread:
    """A file that can't be read as a whole, and why."""

    file: File
    error: RunnelError


def look_into(
    con: "duckdb.DuckDBPyConnection", request: Request, scratch: Scratch
) -> tuple[tuple[File, ...], tuple[Unread, ...]]:
    """Return the files in the form in which they are read, and those that can't be."""
    ready: list[File] = []
    unread: list[Unread] = []
    for file in request.files:
        try:
            with whole(file.name, file.path):
                found = _prepared(con, file, request, scratch)
        except Mistake as error:
            unread.append(Unread(file, error))
        else:
            ready += [found] if found is not None else []
    return tuple(ready), tuple(unread)


def open_reader(
    con: "duckdb.DuckDBPyConnection",
    request: Request,
    files: Sequence[File],
    scratch: Scratch,
    expected: Sequence[str] = (),
) -> AnyReader:
    """Return the reader of files that were looked into."""
    if request.format == CSV:
        return CsvReader(con, files, scratch, request.csv)
    if request.format in (JSONL, JSON, XML):
        made = any(file.path not in {each.path for each in request.files} for file in files)
        place = "record" if request.format != JSONL and made else "line"
        return JsonReader(con, files, scratch, expected, writing=request.document.writing, place=place)
    return ParquetReader(files, scratch, in_place=request.in_place)


def _prepared(con: "duckdb.DuckDBPyConnection", file: File, request: Request, scratch: Scratch) -> File | None:
    """Return a file as it is read, or what is read in its place; None where it has no rows. Raises if it can't be."""
    if request.format == CSV:
        scratch.readable(file, request.csv.encoding)
        csv.header_of(file, request.csv)
        return file
    if request.format == PARQUET:
        parquet.footer(file)
        return file
    made = _made(con, file, request, scratch)
    if made is not None and request.format in (JSONL, JSON, XML):
        jsonl.check_lines(made)
        scratch.readable(made)
    return made


def _made(con: "duckdb.DuckDBPyConnection", file: File, request: Request, scratch: Scratch) -> File | None:
    from runnel.connect.files.convert import avro, binary, json, orc, text, xml

    options = request.document
    if request.format == AVRO:
        return avro.parquet(file, scratch)
    if request.format == ORC:
        return orc.parquet(file, scratch)
    if request.format == BINARY:
        return binary.parquet(file, scratch)
    if request.format == TEXT:
        return text.parquet(file, scratch, options.encoding)
    if request.format == XML:
        return xml.lines(file, scratch, options.row_tag, request.schema)
    if not is_utf8(options.encoding, file):
        file = scratch.instead(file, Path(scratch.readable(file, options.encoding)))
    else:
        scratch.readable(file)
    return json.lines(con, file, scratch, options.records) if request.format == JSON else file


def is_blank(file: File) -> bool:
    """Tell whether a small file of text has nothing in it; a damaged one is told of when it is read."""
    try:
        with whole(file.name, file.path), opened(file) as stream:
            return not stream.read(4096).strip(_BLANK)
    except Mistake as error:
        if error.code == "LOAD_FILE_UNREADABLE":
            raise
        return False


def without(files: Sequence[File], unread: Sequence[Unread]) -> tuple[File, ...]:
    """Return the files that are left; what is read in the place of a file has its name."""
    names = {each.file.name for each in unread}
    return tuple(file for file in files if file.name not in names)


def damaged(
    con: "duckdb.DuckDBPyConnection", request: Request, files: Sequence[File], scratch: Scratch
) -> tuple[Unread, ...]:
    """Return the files that can't be read to their end, each tried by itself."""
    import duckdb
    import pyarrow as pa

    found: list[Unread] = []
    for file in files:
        try:
            reader = open_reader(con, request, [file], scratch)
            columns = ", ".join(f"count({column.sql})" for column in reader.columns) or "count(*)"
            con.execute(f"SELECT {columns} FROM ({reader.rows()})").fetchall()
            reader.rejected()
        except (duckdb.Error, pa.ArrowException) as error:
            found.append(Unread(file, unreadable(error, replace(request, files=(file,)))))
    return tuple(found)


def unreadable(error: Exception, request: Request) -> Mistake:
    """Return what to tell about files that DuckDB, or Arrow, gave up on."""
    if request.format == CSV:
        for file in request.files:
            found = csv.explained(file, request.csv)
            if found is not None:
                return found
    lines = str(error).split(": ", 1)[-1].splitlines()
    what = f"{request.where} can't be read as {request.format}: {lines[0] if lines else error}"
    return Mistake(
        "LOAD_UNREADABLE", what, at=request.files[0].name, fix="look at the file; write it again if it is damaged"
    )
