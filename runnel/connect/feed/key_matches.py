"""Find the rows of a version by their keys in work units: keys and rows meet by key, in one shuffle.

Of the version only the key columns are read, once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from runnel.connect.feed.row_places import RowPlaces, write_places
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier, to_duckdb_type
from runnel.lake.scan.row_pieces import count_buckets, load_pieces, normalize_key, split_rows
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.scan.scan_units import ScanUnit, build_scan_units
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.lake.work_runner import WorkRunner

DISPLACED_SIDE, PRESENT_SIDE, TABLE_SIDE = range(3)
_KEYS, _PRESENT, _ROWS, _PLACES = "runnel_keys", "runnel_present", "runnel_rows", "runnel_places"


@dataclass(frozen=True)
class KeyFile:
    """A Parquet file with the key columns, which all machines see."""

    location: str
    side: int


@dataclass(frozen=True)
class KeyedVersion:
    """A version whose rows are searched by key, without its history; can be pickled."""

    files: WarehouseFiles
    metadata: TableMetadata
    key: tuple[str, ...]

    @property
    def fields(self) -> list[NestedField]:
        """Return the key columns."""
        return [self.metadata.schema().find_field(name, case_sensitive=False) for name in self.key]

    def list_key_expressions(self) -> list[str]:
        """Return the SQL expressions by which rows meet."""
        return [normalize_key(quote_identifier(field.name), field.field_type) for field in self.fields]

    def count_key_bytes(self, manifest_entries: Sequence[FileEntry]) -> int:
        """Return how many bytes of data files their key columns have."""
        ids = [field.field_id for field in self.fields]
        return sum(
            sum((entry.file.column_sizes or {}).get(field_id, 0) for field_id in ids) or entry.file.file_size_in_bytes
            for entry in manifest_entries
            if entry.is_data
        )


def find_matching_places(
    runner: WorkRunner,
    version: KeyedVersion,
    manifest_entries: Sequence[FileEntry],
    key_files: Sequence[KeyFile],
) -> list[RowPlaces]:
    """Return the places of rows whose keys displaced files have or, if there are files of present keys, these lack."""
    bucket_count = count_buckets(version.count_key_bytes(manifest_entries), runner.parallel_units)
    units: list[KeyFile | ScanUnit] = [
        *key_files,
        *build_scan_units(manifest_entries, runner.parallel_units, side=TABLE_SIDE),
    ]
    sent_version = KeyedVersion(version.files, drop_history(version.metadata), version.key)
    has_present_keys = any(file.side == PRESENT_SIDE for file in key_files)
    matcher = _KeyMatcher(sent_version, has_present_keys)
    return runner.run_shuffled(_KeySplitter(sent_version, bucket_count), units, matcher, bucket_count)


@dataclass(frozen=True)
class _KeySplitter:
    """Splits files of keys, and the key columns of the version's files."""

    version: KeyedVersion
    bucket_count: int

    def __call__(self, unit: KeyFile | ScanUnit) -> Iterator[tuple[int, bytes]]:
        columns = ", ".join(quote_identifier(field.name) for field in self.version.fields)
        with translate_duckdb_errors(), connect_duckdb() as con:
            if isinstance(unit, KeyFile):
                casts = ", ".join(
                    f"CAST({quote_identifier(field.name)} AS {to_duckdb_type(field.field_type)}) "
                    f"AS {quote_identifier(field.name)}"
                    for field in self.version.fields
                )
                path = quote_exact_path(normalize_location(unit.location))
                rows = f"SELECT DISTINCT {casts} FROM read_parquet({path}, hive_partitioning = false)"
            else:
                table_rows = rows_sql(self.version.files, self.version.metadata, unit.entries, with_positions=True)
                places = f"{quote_identifier(FILE_COLUMN)}, {quote_identifier(POSITION_COLUMN)}"
                rows = f"SELECT {columns}, {places} FROM ({table_rows})"
            yield from split_rows(con, rows, self.version.list_key_expressions(), self.bucket_count, side=unit.side)


@dataclass(frozen=True)
class _KeyMatcher:
    """Writes the places of a bucket's rows that are displaced."""

    version: KeyedVersion
    has_present_keys: bool

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> RowPlaces:
        fields = self.version.fields
        columns = ", ".join(f"{quote_identifier(field.name)} {to_duckdb_type(field.field_type)}" for field in fields)
        with translate_duckdb_errors(), connect_duckdb() as con:
            con.execute(f"CREATE TEMP TABLE {_KEYS} ({columns})")
            con.execute(f"CREATE TEMP TABLE {_PRESENT} ({columns})")
            con.execute(
                f"CREATE TEMP TABLE {_ROWS} ({columns}, {quote_identifier(FILE_COLUMN)} VARCHAR, "
                f"{quote_identifier(POSITION_COLUMN)} BIGINT)"
            )
            load_pieces(con, [_KEYS, _PRESENT, _ROWS], pieces)
            condition = self._build_match(_KEYS)
            if self.has_present_keys:
                condition = f"{condition} OR NOT {self._build_match(_PRESENT)}"
            con.execute(
                f"CREATE TEMP TABLE {_PLACES} AS SELECT old.{quote_identifier(FILE_COLUMN)} AS file, "
                f"old.{quote_identifier(POSITION_COLUMN)} AS pos FROM {_ROWS} AS old WHERE {condition}"
            )
            return write_places(self.version.files, self.version.metadata, con, _PLACES)

    def _build_match(self, table: str) -> str:
        is_same_key = " AND ".join(
            f"old.{quote_identifier(field.name)} IS NOT DISTINCT FROM {table}.{quote_identifier(field.name)}"
            for field in self.version.fields
        )
        return f"EXISTS (SELECT 1 FROM {table} WHERE {is_same_key})"
