"""The logs of runs, which are on the machine that ran them."""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.lake.control import run_history

if TYPE_CHECKING:
    from runnel.client.lake import Lake


def path_of(lake: "Lake", text: str) -> Path:
    """Return where the log of a run is, that of its last attempt or of the one that is named; raise where it is not."""
    found = lake.store.db.read(lambda connection: run_history.one(connection, text))
    names = [attempt.id for attempt in found.attempts]
    run = text if text in names else names[-1] if names else found.id
    path = lake.settings.home / "logs" / "runs" / f"{run}.log"
    if not path.is_file():
        what = f"the log of run {run} is not here"
        raise Mistake("LOG_MISSING", what, fix="a run that has begun has one, on the machine that ran it")
    return path


def text_of(lake: "Lake", run: str) -> str:
    """Return the log of a run."""
    return path_of(lake, run).read_text(encoding="utf-8", errors="replace")
