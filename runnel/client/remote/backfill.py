"""Backfills that a service's workers compute, followed chunk by chunk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.client.remote.follow_run import Follower, ran
from runnel.client.remote.json_values import texts
from runnel.project.execution.backfill import Backfilled, wished
from runnel.run.results.run_result import Event, Ran, State, Watch

if TYPE_CHECKING:
    from datetime import date

    from runnel.client.remote.connection import Connection


def backfill(
    connection: "Connection",
    overrides: Sequence[str],
    select: str | Sequence[str],
    first: "str | date",
    last: "str | date",
    *,
    chunk: str | int | None = None,
    branch: str = "main",
    watch: Watch | None = None,
) -> Backfilled:
    """Ask for a backfill, and return what became of it when it has ended; raise where a step fails.

    Ctrl-C stops it.
    """
    wish, number = wished(select, first, last, chunk=chunk, branch=branch)
    assert wish.days is not None
    body = {"select": texts(select), "from": str(wish.days.first), "to": str(wish.days.last), "branch": branch}
    asked = connection.post("/backfills", {**body, "chunk": f"{number}d" if number else None, "set": list(overrides)})
    chunks, runs = wish.days.chunks(number), list[Ran]()
    for at, (days, one) in enumerate(zip(chunks, asked["chunks"], strict=True), 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {at} of {len(chunks)}: {days}"))
        follower = Follower(connection, one["run"], watch)
        try:
            found = follower.wait()
        except KeyboardInterrupt:
            connection.post(f"/backfills/{asked['backfill']}/cancel")
            found = follower.wait()
        runs.append(ran(found).sound())
        if runs[-1].state in ("failed", "cancelled"):
            return Backfilled(wish.days, chunks, tuple(runs), runs[-1].state)
    state: State = "succeeded" if any(run.commit for run in runs) else "nothing"
    return Backfilled(wish.days, chunks, tuple(runs), state)
