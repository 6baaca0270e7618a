"""Read Parquet with DuckDB, and the columns that a Hive-style path (`day=2026-01-02/`) adds to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyiceberg.types import IcebergType

from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import Incoming, Rejected, checked_names
from runnel.connect.files.scratch_files import Scratch
from runnel.connect.files.text_values import ANY_TEXT
from runnel.connect.iceberg_types import called, common, copied, from_arrow
from runnel.errors import Mistake
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import duckdb_type, exact_path, quoted

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_FILE = internal_column("file")
BROKEN = internal_column("broken")  # in a file that was made of another one: why a row is none
MADE_HERE: dict[bytes | str, bytes | str] = {b"runnel.made_of": b"text"}  # such a file has the column BROKEN
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Footer:
    """What a Parquet file says about itself, and what its path adds."""

    file: File
    metadata: "pq.FileMetaData"
    kinds: dict[str, IcebergType]
    hive: dict[str, str | None]
    ids: dict[str, int]  # the field ids that an Iceberg writer gave to its columns
    tells_broken: bool = False

    def kind(self, name: str) -> IcebergType | None:
        """Return the type of a column that the file itself has, whatever the name's case."""
        return next((kind for other, kind in self.kinds.items() if other.lower() == name.lower()), None)

    def in_path(self, name: str) -> bool:
        """Tell whether only the path has a column."""
        return any(other.lower() == name.lower() for other in self.hive)

    def path_text(self, name: str) -> str | None:
        """Return what the path says of a column."""
        return next((text for other, text in self.hive.items() if other.lower() == name.lower()), None)


class ParquetReader:
    """Parquet files, in groups of equal columns."""

    def __init__(self, files: Sequence[File], scratch: Scratch, *, in_place: bool = False) -> None:
        self.footers = {file: footer(file) for file in files}
        self.must_check = any(found.tells_broken for found in self.footers.values())
        self._paths = {file: scratch.readable(file) for file in files}
        kinds = joined(list(self.footers.values()))
        columns = []
        for position, (name, kind) in enumerate(kinds.items()):
            stored = kind if kind is None or in_place else copied(kind)
            columns.append(Incoming(name, f"v{position}", stored, () if kind else ANY_TEXT))
        self.columns = tuple(columns)

    @property
    def count(self) -> int:
        """Return the number of rows, which the footers know."""
        return sum(found.metadata.num_rows for found in self.footers.values())

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of all rows, or of one file's in order."""
        groups: dict[tuple[object, ...], list[Footer]] = {}
        for each, found in self.footers.items():
            if file is None or each == file:
                key = (*((name, str(kind)) for name, kind in found.kinds.items()), *found.hive)
                groups.setdefault(key, []).append(found)
        return "\nUNION ALL\n".join(self._select(group) for group in groups.values())

    def _select(self, group: Sequence[Footer]) -> str:
        names = {name.lower(): name for name in (*group[0].kinds, *group[0].hive)}
        columns = []
        for column in self.columns:
            kind = duckdb_type(column.kind) if column.kind else "VARCHAR"
            name = names.get(column.name.lower())
            columns.append(f"CAST({quoted(name) if name else 'NULL'} AS {kind}) AS {column.sql}")
        paths = ", ".join(exact_path(self._paths[found.file]) for found in group)
        hive = f"hive_partitioning = {str(bool(group[0].hive)).lower()}"
        types = ", hive_types_autocast = false" if group[0].hive else ""
        broken = quoted(BROKEN) if group[0].tells_broken else "CAST(NULL AS VARCHAR)"
        return (
            f"SELECT {', '.join(columns)}, {quoted(_FILE)} AS file, {broken} AS broken "
            f"FROM read_parquet([{paths}], {hive}{types}, filename = '{_FILE}')"
        )

    def rejected(self, most: int | None = None) -> Rejected:
        """Return nothing: a file of Parquet is whole or broken."""
        return Rejected()

    def places(self, file: File, rows: Sequence[int]) -> dict[int, str]:
        """Return the numbers themselves: Parquet has no lines."""
        return {row: f"row {row}" for row in rows}


def footer(file: File) -> Footer:
    """Return the footer of a file, or raise where it is no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path) as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"{file.name} is not a whole Parquet file: {str(error).splitlines()[0]}"
        fix = "copy or write it again; --format names the format if it is another"
        raise Mistake("LOAD_NOT_PARQUET", what, at=file.name, fix=fix) from error
    tells_broken = MADE_HERE.items() <= (schema.metadata or {}).items()
    own = [name for name in schema.names if not (tells_broken and name == BROKEN)]
    names = checked_names(own, file.name)
    kinds = {name: from_arrow(name, schema.field(name).type, file.name) for name in names}
    present = {name.lower() for name in names}
    hive = {name: value for name, value in hive_values(file.path).items() if name.lower() not in present}
    checked_names((*names, *hive), file.name)
    found = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in schema}
    ids = {name: int(text) for name, text in found.items() if text is not None}
    return Footer(file, metadata, kinds, hive, ids, tells_broken)


def hive_values(path: str) -> dict[str, str | None]:
    """Return the columns that the folders of a path name.

    >>> hive_values("/data/day=2026-01-02/shop=a%20b/part-0.parquet")
    {'day': '2026-01-02', 'shop': 'a b'}
    """
    found: dict[str, str | None] = {}
    for part in Path(path).parent.parts:
        name, equals, value = part.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return found


def joined(footers: Sequence[Footer]) -> dict[str, IcebergType | None]:
    """Return the columns of all files together, in order of appearance; None is the text of a path."""
    names: dict[str, str] = {}
    kinds: dict[str, IcebergType | None] = {}
    first: dict[str, str] = {}
    for found in footers:
        everything: dict[str, IcebergType | None] = {**found.kinds, **dict.fromkeys(found.hive)}
        for name, kind in everything.items():
            key = name.lower()
            if key not in names:
                names[key], kinds[key], first[key] = name, kind, found.file.name
                continue
            one = kinds[key]
            both = common(one, kind) if one and kind else None
            if both is None and one != kind:
                raise _differ(name, (first[key], one), (found.file.name, kind))
            kinds[key] = both
    return {names[key]: kind for key, kind in kinds.items()}


def _differ(name: str, one: tuple[str, IcebergType | None], other: tuple[str, IcebergType | None]) -> Mistake:
    def said(side: tuple[str, IcebergType | None]) -> str:
        return f"{called(side[1])} in {side[0]}" if side[1] else f"part of the path of {side[0]}"

    what = f"the column `{name}` is {said(one)}, but {said(other)}"
    return Mistake("LOAD_TYPE", what, at=other[0], fix="load the files one after the other, or write them alike")
