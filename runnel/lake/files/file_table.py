"""Define file tables: their columns, their layout, and how to recognise them.

Rows are sorted by path, in data files and row groups of moderate size, and the bounds of paths are not truncated: so a
look-up reads the paths of one or two row groups, and replacing one file rewrites one small data file.
"""

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, TimestamptzType

from runnel.errors import Mistake
from runnel.lake.history.commits import Commit, find_version
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

# A blob costs two syncs and a directory entry, about as much as writing a few hundred KiB into a row. For larger
# contents a blob pays off: equal contents are stored once, and are not rewritten with their neighbours.
DEFAULT_INLINE_BYTES = 256 * 1024
PROPERTIES = {
    table_properties.KIND: "files",
    table_properties.INLINE_BYTES: str(DEFAULT_INLINE_BYTES),
    "write.target-file-size-bytes": str(32 * 1024 * 1024),
    "write.parquet.row-group-size-bytes": str(4 * 1024 * 1024),
    "write.metadata.metrics.default": "counts",
    "write.metadata.metrics.column.path": "full",  # the default of 16 characters is too short for paths
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
SORT_ORDER = SortOrder(SortField(source_id=1, transform=IdentityTransform()))


def stage_file_table(store: "Store", table: "TableName") -> tuple[str, TableMetadata]:
    """Stage a new, empty file table and return its first version; nothing points at it yet."""
    return table_metadata.create_table(store, table, SCHEMA, sort=SORT_ORDER, properties=PROPERTIES)


def load_file_table(store: "Store", table: "TableName", version: TableVersion) -> TableMetadata:
    """Return the metadata of a file table's version, or raise if it is another kind of table."""
    metadata = table_metadata.load_metadata(store, version.location)
    if not table_properties.is_file_table(metadata):
        raise Mistake(
            "FILES_NOT_A_FILE_TABLE",
            f"`{table}` holds rows, not files",
            fix="name a table that `runnel put` created, or use `runnel query` and `runnel load` for this one",
        )
    field_types = {field.name: field.field_type for field in metadata.schema().fields}
    changed = [field.name for field in SCHEMA.fields if field_types.get(field.name) != field.field_type]
    if changed:
        raise Mistake(
            "FILES_NOT_A_FILE_TABLE",
            f"the column `{changed[0]}` of the file table `{table}` was dropped, renamed or retyped",
            fix="revert the commit that changed it: runnel log TABLE, runnel revert COMMIT",
        )
    return metadata


def load_at_ref(store: "Store", table: "TableName", at: str) -> tuple[Commit, TableMetadata]:
    """Return the commit of a ref and the metadata of a file table at it."""
    commit = store.commit(at)
    return commit, load_file_table(store, table, store.versions(commit, [table])[table])


def find_current_version(store: "Store", table: "TableName", branch: str) -> TableVersion | None:
    """Return the newest version of a table on a branch, or None if it does not exist."""
    commit = store.commit(branch)
    return store.db.read(lambda connection: find_version(connection, commit, table))


def read_inline_limit(metadata: TableMetadata) -> int:
    """Return the size up to which contents are stored in the table itself."""
    return int(metadata.properties.get(table_properties.INLINE_BYTES, DEFAULT_INLINE_BYTES))
