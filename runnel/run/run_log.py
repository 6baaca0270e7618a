"""The log of a run: every step with its time, and the full trace of every error."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from runnel.run.results.run_result import Event


class RunLog:
    """A text file of its own for each run, written line by line, so that a crash loses nothing."""

    def __init__(self, folder: Path, run: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{run}.log"
        self._guard = threading.Lock()

    def write(self, text: str) -> None:
        """Add a line with the time, or several; a disk that is full loses them, and no run."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError), self._guard, self.path.open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {text.rstrip()}\n")

    def event(self, event: Event) -> None:
        """Add what happened, unless it is mere progress."""
        if event.kind == "progress":
            return
        done = event.outcome
        if done is None:
            self.write(
                " ".join(part for part in (event.kind, str(event.table or ""), event.action, event.text) if part)
            )
            return
        rows = "" if done.rows is None else f" {done.rows} rows"
        self.write(f"{done.state} {done.table} {done.action}{rows} in {done.seconds:.3f} s: {done.reason}")
        for warning in done.warnings:
            self.write(f"warning {done.table}: {warning}")
        if done.error is not None:
            self.write(str(done.error))
