"""Find and read the logs of runs, which are on the machine that ran them."""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.lake.control import run_history

if TYPE_CHECKING:
    from runnel.client.lake import Lake


def find_log_path(lake: "Lake", run_or_attempt: str) -> Path:
    """Return the path of a run's log, of its last attempt or the given attempt; raise if it is not on this machine."""
    journal_item = lake.store.db.read(lambda connection: run_history.find_run_record(connection, run_or_attempt))
    names = [attempt.id for attempt in journal_item.attempts]
    run = run_or_attempt if run_or_attempt in names else names[-1] if names else journal_item.id
    path = lake.settings.home / "logs" / "runs" / f"{run}.log"
    if not path.is_file():
        what = f"the log of run {run} is not on this machine"
        raise Mistake("LOG_MISSING", what, fix="a run has a log as soon as it starts, on the machine that runs it")
    return path


def read_log(lake: "Lake", run: str) -> str:
    """Return the log of a run."""
    return find_log_path(lake, run).read_text(encoding="utf-8", errors="replace")
