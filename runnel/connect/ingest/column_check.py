"""Check the columns of a source's files against those that it declares, file by file; require the never-null ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.open_files import AnyReader, UnreadableFile
from runnel.connect.files.parquet import ParquetReader
from runnel.connect.ingest.read_request import allows_missing_columns
from runnel.connect.load.column_matching import ColumnChoice
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError, did_you_mean, join_names


def check_columns(reader: AnyReader, source: Source, existing_columns: Sequence[str]) -> tuple[UnreadableFile, ...]:
    """Return the files that lack a declared column; raise if a file has a new column and the source allows none.

    JSON lines are not checked: a column that an object lacks is null.
    """
    incomplete_files = []
    declared = _list_declared_columns(source)
    known_names = {name.lower() for name in (*declared, *existing_columns)}
    for file, columns in _list_columns_by_file(reader).items():
        present = {column.lower() for column in columns}
        missing = [name for name in declared if name.lower() not in present] if not _may_lack_columns(source) else []
        new_columns = [column for column in columns if column.lower() not in known_names]
        if missing:
            incomplete_files.append(
                UnreadableFile(file, _describe_missing_columns(file, missing, new_columns or columns))
            )
        elif new_columns and source.on_new_column == "stop" and known_names:
            raise _describe_new_columns(file, new_columns, [*declared, *existing_columns])
    return tuple(incomplete_files)


def require_values(choices: Sequence[ColumnChoice], source: Source) -> tuple[ColumnChoice, ...]:
    """Return choices in which the source's `never_null` columns are required: a row that is null there is bad."""
    names = {name.lower() for name in source.never_null}
    return tuple(replace(choice, required=choice.required or choice.name.lower() in names) for choice in choices)


def restore_required(inferred: Sequence[ColumnChoice], choices: Sequence[ColumnChoice]) -> tuple[ColumnChoice, ...]:
    """Return the inferred choices with the `required` flags of the original ones, which the table's columns get."""
    required = {choice.name for choice in choices if choice.required}
    return tuple(replace(choice, required=choice.name in required) for choice in inferred)


def _list_declared_columns(source: Source) -> list[str]:
    files = source.origin
    return [column.name for column in files.schema or ()] if isinstance(files, Files) else []


def _may_lack_columns(source: Source) -> bool:
    return isinstance(source.origin, Files) and allows_missing_columns(source.origin)


def _list_columns_by_file(reader: AnyReader) -> Mapping[LocalFile, Sequence[str]]:
    if isinstance(reader, CsvReader):
        return reader.headers
    if isinstance(reader, ParquetReader):
        return {file: (*footer.kinds, *footer.hive_values) for file, footer in reader.footers.items()}
    return {}


def _describe_missing_columns(file: LocalFile, missing: Sequence[str], others: Sequence[str]) -> RunnelError:
    what = f"{file.name} lacks {join_names(missing)}" + did_you_mean(missing[0], others)
    fix = (
        "correct the name in the file or in the source's schema; if files may lack it, "
        'add missing_columns="null" to rn.files'
    )
    return RunnelError("SOURCE_COLUMN_MISSING", what, at=f"{file.name}:1", fix=fix)


def _describe_new_columns(file: LocalFile, new_columns: Sequence[str], existing_columns: Sequence[str]) -> RunnelError:
    hint = did_you_mean(new_columns[0], existing_columns)
    what = f"{file.name} has {join_names(new_columns)}, which the source does not declare{hint}"
    fix = 'correct the name or declare it, add new columns with on_new_column="add", or leave them out with "ignore"'
    return RunnelError("SOURCE_NEW_COLUMN", what, at=f"{file.name}:1", fix=fix)
