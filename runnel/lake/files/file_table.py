"""File tables: their columns, how they are laid out, and how to tell them from others.

Rows are sorted by path, in data files and row groups of moderate size, and the bounds of paths are kept whole: so a
look-up reads the paths of one or two row groups, and replacing one file rewrites one small data file.
"""

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, TimestamptzType

from runnel.errors import Mistake
from runnel.lake.history.commits import Commit, Version, version_at
from runnel.lake.iceberg import table_metadata, table_properties

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

# A blob costs two syncs and a name of its own, about what writing a few hundred KiB in a row costs; beyond that the
# sync no longer matters, and storing equal contents once, and never writing them again with their neighbours, does.
INLINE_BYTES = 256 * 1024
PROPERTIES = {
    table_properties.KIND: "files",
    table_properties.INLINE_BYTES: str(INLINE_BYTES),
    "write.target-file-size-bytes": str(32 * 1024 * 1024),
    "write.parquet.row-group-size-bytes": str(4 * 1024 * 1024),
    "write.metadata.metrics.default": "counts",
    "write.metadata.metrics.column.path": "full",  # 16 characters, the default, tell apart no two files of a folder
}
SCHEMA = Schema(
    NestedField(1, "path", StringType(), required=True),
    NestedField(2, "size", LongType(), required=False),
    NestedField(3, "sha256", StringType(), required=False),
    NestedField(4, "modified_at", TimestamptzType(), required=False),
    NestedField(5, "content", BinaryType(), required=False),
    NestedField(6, "blob", StringType(), required=False),
    identifier_field_ids=[1],
)
SORT = SortOrder(SortField(source_id=1, transform=IdentityTransform()))


def create(store: "Store", table: "TableName") -> tuple[str, TableMetadata]:
    """Stage a new, empty file table and return its first version; nothing points at it yet."""
    return table_metadata.create(store, table, SCHEMA, sort=SORT, properties=PROPERTIES)


def opened(store: "Store", table: "TableName", version: Version) -> TableMetadata:
    """Return the metadata of a file table's version, or raise where it is another kind of table."""
    metadata = table_metadata.load(store, version.location)
    if not table_properties.is_file_table(metadata):
        raise Mistake(
            "FILES_NOT_A_FILE_TABLE",
            f"`{table}` holds rows, not files",
            fix="name a table that `runnel put` made, or use `runnel query` and `runnel load` for this one",
        )
    found = {field.name: field.field_type for field in metadata.schema().fields}
    changed = [field.name for field in SCHEMA.fields if found.get(field.name) != field.field_type]
    if changed:
        raise Mistake(
            "FILES_NOT_A_FILE_TABLE",
            f"the column `{changed[0]}` of the file table `{table}` was dropped, renamed or retyped",
            fix="revert the commit that changed it: runnel log TABLE, runnel revert COMMIT",
        )
    return metadata


def at_ref(store: "Store", table: "TableName", at: str) -> tuple[Commit, TableMetadata]:
    """Return a file table at a ref."""
    commit = store.commit(at)
    return commit, opened(store, table, store.versions(commit, [table])[table])


def current(store: "Store", table: "TableName", branch: str) -> Version | None:
    """Return the newest version of a table on a branch, or None where it does not exist."""
    commit = store.commit(branch)
    return store.db.read(lambda connection: version_at(connection, commit, table))


def inline_bytes(metadata: TableMetadata) -> int:
    """Return up to which size contents stand in the table itself."""
    return int(metadata.properties.get(table_properties.INLINE_BYTES, INLINE_BYTES))
