"""Read the header of a CSV file: the names of its columns, and whether DuckDB can read the file where it is."""

import csv
from dataclasses import dataclass

from runnel.connect.files.csv_text.csv_records import CsvRecord, needs_copy, read_records
from runnel.connect.files.csv_text.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions, check_column_names
from runnel.errors import Mistake


@dataclass(frozen=True)
class CsvHeader:
    """The names of a file's columns; `needs_copy` if DuckDB can't read the file where it is."""

    names: tuple[str, ...]
    needs_copy: bool


def inspect_header(file: LocalFile, options: CsvOptions) -> CsvHeader:
    """Return the header of a file; raise if its names can't be columns of a table."""
    if file.split is not None:
        return CsvHeader(file.split.header, needs_copy=False)
    try:
        first_record = next(read_records(file, options), None)
    except csv.Error as error:
        fix = "is it CSV? name the format with --format, or the delimiter and quote"
        raise Mistake("LOAD_CSV", f"{file.name}, line 1: {error}", at=f"{file.name}:1", fix=fix) from error
    if first_record is None or not first_record.values:
        what = f"{file.name} is empty: there is no line with a column in it"
        raise Mistake("LOAD_FILE_EMPTY", what, at=file.name, fix="leave it out, or see why its writer wrote nothing")
    return CsvHeader(_list_names(file, options, first_record), needs_copy(file, options, first_record))


def read_header(file: LocalFile, options: CsvOptions) -> tuple[str, ...]:
    """Return the names of a file's columns; raise if they can't be columns of a table."""
    return inspect_header(file, options).names


def _list_names(file: LocalFile, options: CsvOptions, first_record: CsvRecord) -> tuple[str, ...]:
    first_values = first_record.values
    if options.header:
        if any(map(_has_undecoded_bytes, first_values)):
            what = f"{file.name}, line 1: the names of its columns are not {options.encoding.upper()}"
            raise Mistake("LOAD_ENCODING", what, at=f"{file.name}:1", fix=suggest_encoding(file))
        return check_column_names([name.strip() for name in first_values] if options.trim else first_values, file.name)
    if options.names and len(options.names) != len(first_values):
        what = f"{file.name} has {len(first_values)} columns and no header, but {len(options.names)} columns are known"
        raise Mistake(
            "LOAD_CSV", what, at=f"{file.name}:1", fix="give --schema with a column for each of them, in order"
        )
    return options.names or tuple(f"c{position}" for position in range(1, len(first_values) + 1))


def _has_undecoded_bytes(value: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in value)
