"""Rows without a watermark: nobody can tell when they came, so they are bad rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import State
from runnel.connect.jdbc.database import Database
from runnel.connect.jdbc.table_inspection import Look
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.connect.load.quarantine import Aside


@dataclass(frozen=True)
class Unmarked:
    """How many rows have no watermark, and their checksum where they are set aside: once, not at each run."""

    database: Database
    looked: Look
    count: int
    checksum: str
    is_new: bool

    @property
    def is_news(self) -> bool:
        """Tell whether they are a reason to fetch: to be set aside, or to stop."""
        return bool(self.count) and (self.looked.source.on_bad == "stop" or self.is_new)

    @property
    def state(self) -> dict[str, Any]:
        """Return what the next look compares with."""
        return {"unmarked": self.checksum} if self.looked.source.on_bad == "quarantine" and self.count else {}

    def judge(self) -> None:
        """Raise where the source says that they stop it."""
        if not self.count or self.looked.source.on_bad != "stop":
            return
        name, mark = self.looked.name, self.looked.origin.watermark
        what = f"{self.count:,} row{'s' if self.count != 1 else ''} of {name} have no `{mark}`, the watermark"
        fix = f'fill `{mark}` in, or leave them out with on_bad="drop", or set them aside with "quarantine"'
        raise RunnelError("SOURCE_NO_WATERMARK", what, at=str(self.looked.source.place), fix=fix)

    def rows(self, folder: Path) -> "Iterator[Aside]":
        """Yield them, where they are to be set aside, or counted as dropped, and were not yet."""
        import json

        import pyarrow.parquet as pq

        from runnel.connect.jdbc.row_reader import read
        from runnel.connect.load.quarantine import Aside

        if not self.count or not self.is_new:
            return
        assert self.looked.mark is not None
        below, at = folder / "unmarked", datetime.now(UTC)
        below.mkdir()
        looked = self.looked
        condition = f"{self.looked.mark.raw} IS NULL"
        found = read(self.database, looked.columns, looked.relation, [condition], below, looked.name, lambda *_: None)
        reason = f"`{looked.mark.name if looked.mark else ''}`, the watermark, is null"
        for batch in pq.ParquetFile(found.parts[0].path).iter_batches():
            for row in batch.to_pylist():
                yield Aside(json.dumps(row, default=str), reason, looked.name, "", at)
        yield from found.bad


def unmarked(database: Database, looked: Look, known: State | None, count: int) -> Unmarked:
    """Return the rows without a watermark, of which there are so many."""
    assert looked.mark is not None
    if not count or looked.source.on_bad != "quarantine":
        return Unmarked(database, looked, count, "", is_new=False)
    _, checksum = looked.counted(database, f"{looked.mark.raw} IS NULL")
    return Unmarked(database, looked, count, checksum, (known or {}).get("unmarked") != checksum)
