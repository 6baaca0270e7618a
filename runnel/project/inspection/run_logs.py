"""Find and read the logs of runs, which are on the machine that ran them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.lake.control import run_history

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.flow_state.runs import Run

_CHUNK_BYTES = 65536


@dataclass(frozen=True)
class AttemptLog:
    """The log of one attempt of a run. `heading` is None if the log is printed alone."""

    run: str
    attempt: int
    path: Path
    heading: str | None = None

    def read_chunks(self) -> Iterator[bytes]:
        """Yield the heading, and the log piece by piece; a log on another machine has only the heading."""
        if self.heading is not None:
            yield f"{self.heading}\n".encode()
        if self.path.is_file():
            with self.path.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk

    @property
    def text(self) -> str:
        """Return the heading and the log."""
        return b"".join(self.read_chunks()).decode("utf-8", "replace")


def find_logs(lake: "Lake", run_or_attempt: str, number: int | None = None) -> list[AttemptLog]:
    """Return the logs of all attempts of a run in order, or of one attempt: that number, or the id of a later one.

    Raise if none of them is on this machine.
    """
    record = lake.store.db.read(lambda connection: run_history.find_run_record(connection, run_or_attempt))
    attempts = [attempt for attempt in record.attempts if attempt.id == run_or_attempt != record.id] or record.attempts
    if number is not None:
        attempts = [attempt for attempt in record.attempts if attempt.detail["attempt"] == number]
    if number is not None and not attempts:
        count = len(record.attempts)
        what = f"run {record.id} has no attempt {number}; it has {count} attempt{'' if count == 1 else 's'}"
        raise Mistake("ATTEMPT_UNKNOWN", what, fix=f"`runnel runs {record.id}` lists its attempts")
    folder = lake.settings.home / "logs" / "runs"
    logs = [_build_log(folder, attempt, with_heading=len(attempts) > 1) for attempt in attempts]
    if not any(log.path.is_file() for log in logs):
        raise _build_missing_log_error(attempts[-1] if attempts else record.run)
    return logs


def _build_missing_log_error(attempt: "Run") -> Mistake:
    """Return the error about a run without a log here; if the run failed, it names the cause, which a log would."""
    what = f"the log of run {attempt.id} is not on this machine"
    fix = "a run has a log as soon as it starts its steps, on the machine that runs it"
    error = attempt.detail.get("error") if attempt.state in ("failed", "lost") else None
    if error:
        what = f"{what}; the run failed: {error['what']}"
        fix = f"{error['fix']}; {fix}" if error.get("fix") else fix
    return Mistake("LOG_MISSING", what, fix=fix)


def _build_log(folder: Path, attempt: "Run", *, with_heading: bool) -> AttemptLog:
    path, number = folder / f"{attempt.id}.log", attempt.detail["attempt"]
    worker = f" on worker {attempt.detail['worker']}" if attempt.detail.get("worker") else ""
    missing = "" if path.is_file() else "; its log is not on this machine"
    heading = f"attempt {number}{worker}: {attempt.state}{missing}" if with_heading else None
    return AttemptLog(attempt.id, number, path, heading)


def read_log(lake: "Lake", run: str, attempt: int | None = None) -> str:
    """Return the logs of all attempts of a run, or of one attempt."""
    return "".join(log.text for log in find_logs(lake, run, attempt))
