"""How large a version of a table is, from its own summary: no data and no manifest is read."""

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class Size:
    """Rows, bytes and data files; None where the engine that wrote the version did not say."""

    rows: int | None
    bytes: int | None
    files: int | None


def size_of(metadata: TableMetadata) -> Size:
    """Return the size of a version."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return Size(0, 0, 0)
    summary = snapshot.summary.additional_properties if snapshot.summary else {}

    def total(name: str) -> int | None:
        return int(summary[name]) if name in summary else None

    rows, gone = total("total-records"), total("total-position-deletes") or 0
    unknown = rows is None or (total("total-equality-deletes") or 0) > 0
    return Size(None if rows is None or unknown else rows - gone, total("total-files-size"), total("total-data-files"))
