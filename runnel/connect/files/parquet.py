"""Read Parquet with DuckDB, and the columns that a Hive-style path (`day=2026-01-02/`) adds to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyiceberg.types import IcebergType

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import FileColumn, RejectedRows, check_column_names
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.files.text_values import TEXT_GUESSES
from runnel.connect.iceberg_types import convert_arrow_type, find_common_type, to_copyable_type
from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.iceberg.schema_diff import describe_type
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier, quote_literal, to_duckdb_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_FILE_COLUMN = internal_column("file")
BROKEN_COLUMN = internal_column("broken")  # in a converted file: why a row can't be loaded
CONVERTED_FILE_METADATA: dict[bytes | str, bytes | str] = {b"runnel.made_of": b"text"}  # marks files with BROKEN_COLUMN
_DURATION_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
ROW_NUMBER = "file_row_number"  # a column that DuckDB adds; it reads only the row groups that a condition on it needs


@dataclass(frozen=True)
class FileFooter:
    """The footer of a Parquet file, and the columns that its path adds."""

    file: LocalFile
    metadata: "pq.FileMetaData"
    kinds: dict[str, IcebergType]
    hive_values: dict[str, str | None]
    ids: dict[str, int]  # the field ids that an Iceberg writer gave to its columns
    arrow_types: "dict[str, pa.DataType]"
    has_broken_column: bool = False

    def find_type(self, name: str) -> IcebergType | None:
        """Return the type of a column that the file itself has, ignoring the case of its name."""
        return next((kind for other, kind in self.kinds.items() if other.lower() == name.lower()), None)

    def describe_duration(self, name: str) -> str | None:
        """Return the comment of a column of durations, which is stored as a number; None for other columns."""
        import pyarrow as pa

        kind = self.arrow_types.get(name)
        return f"duration in {_DURATION_UNITS[kind.unit]}" if kind is not None and pa.types.is_duration(kind) else None

    def is_in_path(self, name: str) -> bool:
        """Tell whether only the path has a column."""
        return any(other.lower() == name.lower() for other in self.hive_values)

    def find_path_text(self, name: str) -> str | None:
        """Return the text that the path has for a column."""
        return next((text for other, text in self.hive_values.items() if other.lower() == name.lower()), None)


class ParquetReader:
    """Reads Parquet files, grouped by equal columns."""

    def __init__(
        self, files: Sequence[LocalFile], scratch: ScratchFiles, expected: Sequence[str] = (), *, in_place: bool = False
    ) -> None:
        """Open files; `expected` columns exist, all null, even if no file has them."""
        self.footers = {file: read_footer(file) for file in files}
        self.must_check = any(file_footer.has_broken_column for file_footer in self.footers.values())
        self._paths = {file: scratch.make_readable(file) for file in files}
        self.columns = list_columns(list(self.footers.values()), expected, in_place=in_place)

    @property
    def row_count(self) -> int:
        """Return the number of rows, from the footers."""
        return sum(file_footer.metadata.num_rows for file_footer in self.footers.values())

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        groups: dict[tuple[object, ...], list[FileFooter]] = {}
        for parquet_file, file_footer in self.footers.items():
            if file is None or parquet_file == file:
                key = (*((name, str(kind)) for name, kind in file_footer.arrow_types.items()), *file_footer.hive_values)
                groups.setdefault(key, []).append(file_footer)
        return "\nUNION ALL\n".join(self._select_group(group) for group in groups.values())

    def _select_group(self, group: Sequence[FileFooter]) -> str:
        names = {name.lower(): name for name in (*group[0].kinds, *group[0].hive_values)}
        columns = []
        for column in self.columns:
            kind = to_duckdb_type(column.kind) if column.kind else "VARCHAR"
            name = names.get(column.name.lower())
            value = cut_nanoseconds(quote_identifier(name), group[0].arrow_types.get(name)) if name else "NULL"
            columns.append(f"CAST({value} AS {kind}) AS {column.sql_name}")
        paths = ", ".join(quote_exact_path(self._paths[file_footer.file]) for file_footer in group)
        hive_option = f"hive_partitioning = {str(bool(group[0].hive_values)).lower()}"
        types_option = ", hive_types_autocast = false" if group[0].hive_values else ""
        broken = quote_identifier(BROKEN_COLUMN) if group[0].has_broken_column else "CAST(NULL AS VARCHAR)"
        split = group[0].file.split  # it is read by itself
        rows = f" WHERE {ROW_NUMBER} >= {split.first_row} AND {ROW_NUMBER} < {split.end_row}" if split else ""
        return (
            f"SELECT {', '.join(columns)}, {quote_identifier(_FILE_COLUMN)} AS file, {broken} AS broken "
            f"FROM read_parquet([{paths}], {hive_option}{types_option}, filename = '{_FILE_COLUMN}'){rows}"
        )

    def pop_rejected(self, _most: int | None = None) -> RejectedRows:
        """Return no rows: a Parquet file is readable as a whole or not at all."""
        return RejectedRows()

    def locate_rows(self, file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return the numbers of rows in the whole file: Parquet has no lines."""
        return {row: f"row {row + (file.split.first_row if file.split else 0)}" for row in rows}


def read_footer(file: LocalFile) -> FileFooter:
    """Return the footer of a file; raise if it is not a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path) as parquet_file:
            metadata, schema = parquet_file.metadata, parquet_file.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"{file.name} is not a complete Parquet file: {str(error).splitlines()[0]}"
        fix = "copy or write it again; --format names the format if it is another"
        raise Mistake("LOAD_NOT_PARQUET", what, at=file.name, fix=fix) from error
    has_broken_column = CONVERTED_FILE_METADATA.items() <= (schema.metadata or {}).items()
    own_names = [name for name in schema.names if not (has_broken_column and name == BROKEN_COLUMN)]
    names = check_column_names(own_names, file.name)
    kinds = {name: convert_arrow_type(name, schema.field(name).type, file.name) for name in names}
    present = {name.lower() for name in names}
    path_columns = {name: value for name, value in parse_hive_path(file.path).items() if name.lower() not in present}
    check_column_names((*names, *path_columns), file.name)
    field_ids = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in schema}
    ids = {name: int(text) for name, text in field_ids.items() if text is not None}
    arrow_types = {name: schema.field(name).type for name in names}
    return FileFooter(file, metadata, kinds, path_columns, ids, arrow_types, has_broken_column)


def cut_nanoseconds(value: str, kind: "pa.DataType | None", depth: int = 0) -> str:
    """Return SQL of a value whose times are cut to microseconds, towards the past; DuckDB's casts round them."""
    import pyarrow as pa

    if kind is None or "timestamp[ns" not in str(kind):
        return value
    if pa.types.is_timestamp(kind):
        nanoseconds = f"epoch_ns({value})"
        microseconds = f"({nanoseconds} - ({nanoseconds} % 1000 + 1000) % 1000) // 1000"
        # The last moment, which pandas has as its maximum, is infinity for DuckDB.
        return f"coalesce(TRY(make_timestamp({microseconds})), CAST({value} AS TIMESTAMP))"
    element = f"element{depth}"
    if pa.types.is_struct(kind):
        names = [(field, quote_literal(field.name)) for field in kind]
        fields = [
            f"{name}: {cut_nanoseconds(f'struct_extract({value}, {name})', field.type, depth)}" for field, name in names
        ]
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(fields)}}} END"
    if pa.types.is_map(kind):
        key = cut_nanoseconds(f"{element}.key", kind.key_type, depth + 1)
        item = cut_nanoseconds(f"{element}.value", kind.item_type, depth + 1)
        entries = f"list_transform(map_entries({value}), lambda {element}: {{'key': {key}, 'value': {item}}})"
        return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list_transform({value}, lambda {element}: {cut_nanoseconds(element, kind.value_type, depth + 1)})"
    return value


def parse_hive_path(path: str) -> dict[str, str | None]:
    """Return the columns that the Hive-style folders of a path name, with their values.

    >>> parse_hive_path("/data/day=2026-01-02/shop=a%20b/part-0.parquet")
    {'day': '2026-01-02', 'shop': 'a b'}
    """
    values: dict[str, str | None] = {}
    for folder in Path(path).parent.parts:
        name, equals, value = folder.partition("=")
        if equals and name:
            values[unquote(name)] = None if value == HIVE_NULL else unquote(value)
    return values


def list_columns(
    footers: Sequence[FileFooter], expected: Sequence[str] = (), *, in_place: bool = False
) -> tuple[FileColumn, ...]:
    """Return the columns of files with these footers; `expected` columns are there even if no file has them.

    `in_place` is for files that are registered, not copied.
    """
    kinds = merge_columns(footers)
    columns = []
    for position, (name, kind) in enumerate(kinds.items()):
        stored = kind if kind is None or in_place else to_copyable_type(kind)
        doc = next(filter(None, (file_footer.describe_duration(name) for file_footer in footers)), None)
        columns.append(FileColumn(name, f"v{position}", stored, () if kind else TEXT_GUESSES, doc=doc))
    present = {name.lower() for name in kinds}
    missing = [name for name in expected if name.lower() not in present]
    columns += [FileColumn(name, f"v{len(kinds) + position}") for position, name in enumerate(missing)]
    return tuple(columns)


def merge_columns(footers: Sequence[FileFooter]) -> dict[str, IcebergType | None]:
    """Return the columns of all files with their types, in order of appearance; None is the text of a path."""
    names: dict[str, str] = {}
    kinds: dict[str, IcebergType | None] = {}
    first_files: dict[str, str] = {}
    for file_footer in footers:
        file_columns: dict[str, IcebergType | None] = {**file_footer.kinds, **dict.fromkeys(file_footer.hive_values)}
        for name, kind in file_columns.items():
            key = name.lower()
            if key not in names:
                names[key], kinds[key], first_files[key] = name, kind, file_footer.file.name
                continue
            previous_kind = kinds[key]
            common_kind = find_common_type(previous_kind, kind) if previous_kind and kind else None
            if common_kind is None and previous_kind != kind:
                raise _describe_type_conflict(name, (first_files[key], previous_kind), (file_footer.file.name, kind))
            kinds[key] = common_kind
    return {names[key]: kind for key, kind in kinds.items()}


def _describe_type_conflict(
    name: str, first: tuple[str, IcebergType | None], second: tuple[str, IcebergType | None]
) -> Mistake:
    def describe_side(file_and_kind: tuple[str, IcebergType | None]) -> str:
        return (
            f"{describe_type(file_and_kind[1])} in {file_and_kind[0]}"
            if file_and_kind[1]
            else f"part of the path of {file_and_kind[0]}"
        )

    what = f"the column `{name}` is {describe_side(first)}, but {describe_side(second)}"
    return Mistake(
        "LOAD_TYPE", what, at=second[0], fix="load the files one after the other, or write them with the same type"
    )
