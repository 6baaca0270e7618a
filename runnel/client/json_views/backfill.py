"""Backfills as values and as JSON, with the state of each chunk."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.lake.control import backfills as catalog_backfills

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
    def from_json(cls, body: Mapping[str, Any]) -> "BackfillFacts":
        """Build a backfill from its JSON."""
        chunks = tuple(ChunkFacts(chunk["run"], chunk["from"], chunk["to"], chunk["state"]) for chunk in body["chunks"])
        fields = {name: body[name] for name in ("backfill", "branch", "state", "author", "made_at")}
        return cls(**fields, select=tuple(body["select"]), chunks=chunks)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**asdict(self), "select": list(self.select), "chunks": [chunk.json() for chunk in self.chunks]}


def list_backfills(db: "Database", limit: int) -> list[BackfillFacts]:
    """Return the newest backfills, newest first."""
    return [
        BackfillFacts.from_json(backfill.json())
        for backfill in db.read(lambda connection: catalog_backfills.list_backfills(connection, limit))
    ]


def change_backfill(db: "Database", name: str, action: Literal["pause", "resume", "cancel"]) -> BackfillFacts:
    """Pause, resume or cancel a backfill, and return its new state."""
    apply_action = {
        "pause": catalog_backfills.pause,
        "resume": catalog_backfills.resume,
        "cancel": catalog_backfills.cancel,
    }[action]
    return BackfillFacts.from_json(apply_action(db, name).json())
