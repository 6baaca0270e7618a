"""Backfills as values and as JSON: how far each is, chunk by chunk."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.lake.control import backfills as kept

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database


@dataclass(frozen=True)
class ChunkFacts:
    """Some days, both included, and the run that computes them."""

    run: str
    first: str
    last: str
    state: str

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {"run": self.run, "from": self.first, "to": self.last, "state": self.state}


@dataclass(frozen=True)
class BackfillFacts:
    """A backfill: running, paused, or how it ended; its chunks in their order."""

    backfill: str
    branch: str
    state: str
    author: str
    made_at: str
    select: tuple[str, ...]
    chunks: tuple[ChunkFacts, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "BackfillFacts":
        """Return what JSON tells of a backfill."""
        chunks = tuple(ChunkFacts(one["run"], one["from"], one["to"], one["state"]) for one in found["chunks"])
        known = {name: found[name] for name in ("backfill", "branch", "state", "author", "made_at")}
        return cls(**known, select=tuple(found["select"]), chunks=chunks)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**asdict(self), "select": list(self.select), "chunks": [chunk.json() for chunk in self.chunks]}


def backfills(db: "Database", limit: int) -> list[BackfillFacts]:
    """Return the newest backfills, newest first."""
    return [BackfillFacts.of(one.json()) for one in db.read(lambda connection: kept.backfills(connection, limit))]


def changed(db: "Database", name: str, action: Literal["pause", "resume", "cancel"]) -> BackfillFacts:
    """Pause, resume or cancel a backfill, and return how it is then."""
    change = {"pause": kept.pause, "resume": kept.resume, "cancel": kept.cancel}[action]
    return BackfillFacts.of(change(db, name).json())
