"""Read the size of a table's version from its snapshot summary; no data file or manifest is read."""

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class SizeSummary:
    """Rows, bytes and data files of a version; None if the engine that wrote it did not record them."""

    rows: int | None
    bytes: int | None
    files: int | None


def read_size(metadata: TableMetadata) -> SizeSummary:
    """Return the size of a version."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return SizeSummary(0, 0, 0)
    summary = snapshot.summary.additional_properties if snapshot.summary else {}

    def read_total(name: str) -> int | None:
        return int(summary[name]) if name in summary else None

    rows, deleted_rows = read_total("total-records"), read_total("total-position-deletes") or 0
    is_row_count_unknown = rows is None or (read_total("total-equality-deletes") or 0) > 0
    return SizeSummary(
        None if rows is None or is_row_count_unknown else rows - deleted_rows,
        read_total("total-files-size"),
        read_total("total-data-files"),
    )
