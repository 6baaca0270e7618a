"""Record runs in the catalog: when they started and ended, and what they did to each table.

A run holds a pin or a slot while it works. If that lease has expired and no end was recorded, the run is lost.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.flow_state.code_store import ProjectCode, store_code
from runnel.lake.leases.expiry import is_lease_held
from runnel.names import quote_value

RUNNING, LOST = "running", "lost"
_LEASES_KEY = "leases"  # key of a run's detail that names its pin and its slot


@dataclass(frozen=True)
class Run:
    """One run. `state` is "running", "lost", or the state it was finished with.

    `scheduled_at` is the time of a schedule for which it was queued. `attempts` is filled if the run was requested
    alone; the `detail` of an attempt has its number, its worker and its error.
    """

    id: str
    branch: str
    state: str
    author: str
    started_at: str
    ended_at: str | None = None
    commit: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    scheduled_at: str | None = None
    attempts: "tuple[Run, ...]" = ()


@dataclass(frozen=True)
class RunLeases:
    """The leases that show that a run is alive: a pin, and a slot's name and token."""

    pin: str | None = None
    slot: tuple[str, str] | None = None


_NO_LEASES = RunLeases()


def start(
    db: Database,
    run_id: str,
    branch: str,
    author: str,
    detail: Mapping[str, Any],
    *,
    leases: RunLeases = _NO_LEASES,
    code: ProjectCode | None = None,
) -> None:
    """Record that a run has started, with the leases that show that it is alive. `code` is stored with it.

    May be called again, when the run acquires a slot or is planned again: the last leases count.
    """
    text = json.dumps({**detail, _LEASES_KEY: asdict(leases)}, sort_keys=True, default=str)

    def work(connection: Connection) -> None:
        lock_lake(connection)
        if code is not None:
            store_code(connection, code, db.now(connection))
        running = {"state": RUNNING, "commit_id": None, "ended_at": None, "detail": text}
        if connection.execute(schema.runs.update().where(schema.runs.c.id == run_id).values(running)).rowcount:
            return
        values = {"id": run_id, "branch": branch, "state": RUNNING, "author": author, "detail": text}
        connection.execute(schema.runs.insert().values(**values, started_at=db.now(connection)))

    db.write(work)


def finish(db: Database, run_id: str, state: str, commit_id: str | None, detail: Mapping[str, Any]) -> None:
    """Record how a run ended; `detail` replaces what was recorded at its start."""
    text = json.dumps(dict(detail), sort_keys=True, default=str)

    def work(connection: Connection) -> None:
        values = {"state": state, "commit_id": commit_id, "detail": text, "ended_at": db.now(connection)}
        connection.execute(schema.runs.update().where(schema.runs.c.id == run_id).values(values))

    db.write(work)


def mark_nothing(db: Database, run_id: str) -> None:
    """Record that a run had nothing left to do when it was planned again."""
    update = schema.runs.update().where(schema.runs.c.id == run_id).values(state="nothing")
    db.write(lambda connection: connection.execute(update))


def list_runs(connection: Connection, limit: int | None = None) -> list[Run]:
    """Return the newest runs, newest first."""
    columns = schema.runs.c
    query = sa.select(schema.runs).order_by(columns.started_at.desc(), columns.id.desc()).limit(limit)
    run_rows = [_parse_run(row) for row in connection.execute(query)]
    return [_resolve_state(connection, run_row) for run_row in run_rows]


def find_many(connection: Connection, names: Iterable[str]) -> dict[str, Run]:
    """Return the existing runs among these ids."""
    requested_ids, runs_by_id = list(names), dict[str, Run]()
    for start in range(0, len(requested_ids), 500):
        query = sa.select(schema.runs).where(schema.runs.c.id.in_(requested_ids[start : start + 500]))
        runs_by_id |= {row.id: _resolve_state(connection, _parse_run(row)) for row in connection.execute(query).all()}
    return runs_by_id


def find_run(connection: Connection, text: str) -> Run:
    """Return the run with this id or unique id prefix; otherwise raise an error that names the closest id."""
    columns = schema.runs.c
    exact = connection.execute(sa.select(schema.runs).where(columns.id == text)).first()
    if exact is not None:
        return _resolve_state(connection, _parse_run(exact))
    starts = columns.id.startswith(text, autoescape=True)
    rows = connection.execute(sa.select(schema.runs).where(starts).limit(2)).all() if text else []
    if len(rows) > 1:
        raise Mistake("RUN_AMBIGUOUS", f"several runs start with `{text}`", fix="write more of its characters")
    if not rows:
        recent_ids = connection.execute(sa.select(columns.id).order_by(columns.started_at.desc()).limit(100)).scalars()
        what = f"there is no run {quote_value(text)}" + did_you_mean(text, recent_ids)
        raise Mistake("RUN_UNKNOWN", what, fix="`runnel runs` lists them")
    return _resolve_state(connection, _parse_run(rows[0]))


def _parse_run(row: Row[Any]) -> Run:
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


def _resolve_state(connection: Connection, run_row: Run) -> Run:
    """Return a run without its leases; a running one whose leases have all expired is lost."""
    leases = run_row.detail.get(_LEASES_KEY, {})
    visible_run = replace(
        run_row, detail={name: value for name, value in run_row.detail.items() if name != _LEASES_KEY}
    )
    if run_row.state != RUNNING:
        return visible_run
    slot = leases.get("slot")
    is_alive = is_lease_held(connection, pin=leases.get("pin"), slot=tuple(slot) if slot else None)
    return visible_run if is_alive else replace(visible_run, state=LOST)
