"""Runs as the catalog remembers them: started, ended, with what became of each table.

A run holds a pin or a slot while it works. Where its lease has ended and nobody said how the run did, it is lost.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock
from runnel.lake.flow_state.code_store import Code, keep
from runnel.lake.leases.expiry import held
from runnel.names import shown

RUNNING, LOST = "running", "lost"
_LEASES = "leases"  # where a run's detail names its pin and its slot


@dataclass(frozen=True)
class Run:
    """One run. `state` is "running", "lost", or whatever it was finished with."""

    id: str
    branch: str
    state: str
    author: str
    started_at: str
    ended_at: str | None = None
    commit: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def start(
    db: Database,
    run_id: str,
    branch: str,
    author: str,
    detail: Mapping[str, Any],
    *,
    pin: str | None = None,
    slot: tuple[str, str] | None = None,
    code: Code | None = None,
) -> None:
    """Note that a run has started. `pin` and `slot`, a name and a token, are the leases by which it is alive.

    `code` is kept with it. May be repeated, such as when the run takes a slot: the leases are then those given last.
    """
    leases = {"pin": pin, "slot": list(slot) if slot else None}
    text = json.dumps({**detail, _LEASES: leases}, sort_keys=True, default=str)

    def work(connection: Connection) -> None:
        lock(connection)
        if code is not None:
            keep(connection, code, db.now(connection))
        if connection.execute(schema.runs.update().where(schema.runs.c.id == run_id).values(detail=text)).rowcount:
            return
        values = {"id": run_id, "branch": branch, "state": RUNNING, "author": author, "detail": text}
        connection.execute(schema.runs.insert().values(**values, started_at=db.now(connection)))

    db.write(work)


def finish(db: Database, run_id: str, state: str, commit_id: str | None, detail: Mapping[str, Any]) -> None:
    """Note how a run ended; `detail` takes the place of what was noted at its start."""
    text = json.dumps(dict(detail), sort_keys=True, default=str)

    def work(connection: Connection) -> None:
        values = {"state": state, "commit_id": commit_id, "detail": text, "ended_at": db.now(connection)}
        connection.execute(schema.runs.update().where(schema.runs.c.id == run_id).values(values))

    db.write(work)


def runs(connection: Connection, limit: int | None = None) -> list[Run]:
    """Return the newest runs, newest first."""
    columns = schema.runs.c
    query = sa.select(schema.runs).order_by(columns.started_at.desc(), columns.id.desc()).limit(limit)
    found = [_run(row) for row in connection.execute(query)]
    return [_judged(connection, one) for one in found]


def some(connection: Connection, names: Iterable[str]) -> dict[str, Run]:
    """Return the runs of these ids that there are."""
    wanted, found = list(names), dict[str, Run]()
    for start in range(0, len(wanted), 500):
        query = sa.select(schema.runs).where(schema.runs.c.id.in_(wanted[start : start + 500]))
        found |= {row.id: _judged(connection, _run(row)) for row in connection.execute(query).all()}
    return found


def run(connection: Connection, text: str) -> Run:
    """Return the run with this id, or with the one id that starts so; raise with the nearest otherwise."""
    columns = schema.runs.c
    exact = connection.execute(sa.select(schema.runs).where(columns.id == text)).first()
    if exact is not None:
        return _judged(connection, _run(exact))
    starts = columns.id.startswith(text, autoescape=True)
    rows = connection.execute(sa.select(schema.runs).where(starts).limit(2)).all() if text else []
    if len(rows) > 1:
        raise Mistake("RUN_AMBIGUOUS", f"several runs start with `{text}`", fix="write more of its characters")
    if not rows:
        known = connection.execute(sa.select(columns.id).order_by(columns.started_at.desc()).limit(100)).scalars()
        close = nearest(text, known)
        what = f"there is no run {shown(text)}" + (f"; close: `{close}`" if close else "")
        raise Mistake("RUN_UNKNOWN", what, fix="`runnel runs` lists them")
    return _judged(connection, _run(rows[0]))


def _run(row: Row[Any]) -> Run:
    return Run(
        row.id,
        row.branch,
        row.state,
        row.author,
        row.started_at,
        row.ended_at,
        row.commit_id,
        json.loads(row.detail),
    )


def _judged(connection: Connection, found: Run) -> Run:
    """Return a run without its leases; one that holds none of them any more is lost."""
    leases = found.detail.get(_LEASES, {})
    told = replace(found, detail={name: value for name, value in found.detail.items() if name != _LEASES})
    if found.state != RUNNING:
        return told
    slot = leases.get("slot")
    alive = held(connection, pin=leases.get("pin"), slot=tuple(slot) if slot else None)
    return told if alive else replace(told, state=LOST)
