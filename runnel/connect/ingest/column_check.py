"""Hold the columns of a source's files against those that it declares, file by file."""

from collections.abc import Mapping, Sequence

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import File
from runnel.connect.files.open_files import AnyReader, Unread
from runnel.connect.files.parquet import ParquetReader
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError, listed, nearest


def check_columns(reader: AnyReader, source: Source, known: Sequence[str]) -> tuple[Unread, ...]:
    """Return the files that lack a declared column; raises for one with a column that is not `known` if none may be.

    An object of JSON lines may lack any: it is null there.
    """
    lacking = []
    declared = _declared(source)
    names = {name.lower() for name in (*declared, *known)}
    for file, columns in _by_file(reader).items():
        present = {column.lower() for column in columns}
        missing = [name for name in declared if name.lower() not in present]
        new = [column for column in columns if column.lower() not in names]
        if missing:
            lacking.append(Unread(file, _missing(file, missing, new or columns)))
        elif new and source.on_new_column == "stop" and names:
            raise _new(file, new, [*declared, *known])
    return tuple(lacking)


def _declared(source: Source) -> list[str]:
    files = source.origin
    return [column.name for column in files.schema or ()] if isinstance(files, Files) else []


def _by_file(reader: AnyReader) -> Mapping[File, Sequence[str]]:
    if isinstance(reader, CsvReader):
        return reader.headers
    if isinstance(reader, ParquetReader):
        return {file: (*footer.kinds, *footer.hive) for file, footer in reader.footers.items()}
    return {}


def _missing(file: File, missing: Sequence[str], others: Sequence[str]) -> RunnelError:
    close = nearest(missing[0], others)
    what = f"{file.name} lacks {listed(missing)}" + (f"; close: `{close}`" if close else "")
    fix = "correct the name in the file or in the source's schema; leave out of the schema what files may lack"
    return RunnelError("SOURCE_COLUMN_MISSING", what, at=f"{file.name}:1", fix=fix)


def _new(file: File, new: Sequence[str], known: Sequence[str]) -> RunnelError:
    close = nearest(new[0], known)
    hint = f"; close: `{close}`" if close else ""
    what = f"{file.name} has {listed(new)}, which the source does not declare{hint}"
    fix = (
        'correct the name or declare it, take new columns in with on_new_column="add", or leave them out with "ignore"'
    )
    return RunnelError("SOURCE_NEW_COLUMN", what, at=f"{file.name}:1", fix=fix)
