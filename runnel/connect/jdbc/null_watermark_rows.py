"""Treat rows whose watermark is null as bad rows: it is unknown when they were added."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import FeedState
from runnel.connect.jdbc.database import SourceDatabase
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.errors import RunnelError, plural

if TYPE_CHECKING:
    from runnel.connect.load.quarantined_row import QuarantinedRow


@dataclass(frozen=True)
class NullWatermarkRows:
    """The number of rows without a watermark, and their checksum if they are quarantined: once, not in each run."""

    database: SourceDatabase
    inspection: TableInspection
    count: int
    checksum: str
    is_new: bool

    @property
    def needs_fetch(self) -> bool:
        """Tell whether these rows are a reason to fetch: to quarantine them, or to stop the source."""
        return bool(self.count) and (self.inspection.source.on_bad == "stop" or self.is_new)

    @property
    def state(self) -> dict[str, Any]:
        """Return the state that the next run compares with."""
        return {"unmarked": self.checksum} if self.inspection.source.on_bad == "quarantine" and self.count else {}

    def refuse_if_stop(self) -> None:
        """Raise if there are such rows and the source declares `on_bad="stop"`."""
        if not self.count or self.inspection.source.on_bad != "stop":
            return
        name, watermark = self.inspection.name, self.inspection.origin.watermark
        what = f"{plural(self.count, 'row')} of {name} have no `{watermark}`, the watermark"
        fix = f'fill `{watermark}` in, or leave them out with on_bad="drop", or set them aside with "quarantine"'
        raise RunnelError("SOURCE_NO_WATERMARK", what, at=str(self.inspection.source.place), fix=fix)

    def read_bad_rows(self, folder: Path) -> "Iterator[QuarantinedRow]":
        """Yield the rows that have to be quarantined and were not yet."""
        import json

        import pyarrow.parquet as pq

        from runnel.connect.jdbc.row_reader import RowQuery, read_rows
        from runnel.connect.load.quarantined_row import QuarantinedRow

        if not self.count or not self.is_new:
            return
        assert self.inspection.watermark_column is not None
        rows_folder, quarantined_at = folder / "unmarked", datetime.now(UTC)
        rows_folder.mkdir()
        inspection = self.inspection
        condition = f"{self.inspection.watermark_column.raw} IS NULL"
        query = RowQuery(inspection.columns, inspection.relation, [condition], inspection.name)
        read_result = read_rows(self.database, query, rows_folder, lambda *_: None)
        reason = f"`{inspection.watermark_column.name if inspection.watermark_column else ''}`, the watermark, is null"
        for batch in pq.ParquetFile(read_result.parts[0].path).iter_batches():
            for row in batch.to_pylist():
                yield QuarantinedRow(json.dumps(row, default=str), reason, inspection.name, "", quarantined_at)
        yield from read_result.bad


def find_null_watermark_rows(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState | None, count: int
) -> NullWatermarkRows:
    """Return the `count` rows without a watermark."""
    assert inspection.watermark_column is not None
    if not count or inspection.source.on_bad != "quarantine":
        return NullWatermarkRows(database, inspection, count, "", is_new=False)
    _, checksum = inspection.count_and_checksum(database, f"{inspection.watermark_column.raw} IS NULL")
    return NullWatermarkRows(database, inspection, count, checksum, (previous or {}).get("unmarked") != checksum)
