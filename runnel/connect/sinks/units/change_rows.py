"""Read the rows of a work unit of a change, some of its files, with the columns of the newer version."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connect.sinks.net_rows import old_rows_sql
from runnel.lake.diff.compared_columns import ComparedColumn
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.scan.scan_units import ScanUnit
from runnel.lake.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.connect.sinks.table_change import OutgoingChange

NEW_SIDE, OLD_SIDE = 0, 1


@dataclass(frozen=True)
class ChangeRows:
    """Reads the rows of units, of the newer or the older version; can be pickled."""

    files: WarehouseFiles
    columns: tuple[ComparedColumn, ...]
    before: "TableMetadata | None"
    after: "TableMetadata | None"

    @classmethod
    def of(cls, change: "OutgoingChange") -> "ChangeRows":
        """Return the reader for a change."""
        before, after = (drop_history(metadata) if metadata else None for metadata in (change.before, change.after))
        return cls(change.store.files, change.columns, before, after)

    def build_sql(self, unit: ScanUnit) -> str:
        """Return a SELECT of the rows of a unit."""
        newer = self.after or self.before
        assert newer is not None
        if unit.side == NEW_SIDE:
            return rows_sql(self.files, newer, unit.entries)
        assert self.before is not None
        return old_rows_sql(self.files, self.before, newer, unit.entries)
