"""All runs in one list: what was queued, and what commands ran by themselves. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.client.shapes.run import entry_json, run_json, whole_json
from runnel.errors import Mistake
from runnel.lake import queue, runs, schema

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.queue import Queued
    from runnel.lake.runs import Run

_ID_LENGTH = 24  # of an id of a run; a later attempt adds its number


@dataclass(frozen=True)
class Filter:
    """Which runs are wanted; what is None does not matter. Only queued ones have a cause."""

    state: str | None = None
    cause: str | None = None
    branch: str | None = None


def listed(connection: "Connection", wanted: Filter, limit: int, before: str | None = None) -> list[dict[str, Any]]:
    """Return runs, newest first, one more than `limit` where there are more."""
    found: list[dict[str, Any]] = []
    while len(found) <= limit:
        ids = connection.execute(_ids(wanted, limit + 1, before)).all()
        states = [wanted.state] if wanted.state else []
        queued = queue.entries(connection, states=states, cause=wanted.cause, before=before, limit=limit + 1)
        known = {one.id: one for one in queued}  # but for the branch all that are wanted, in one question
        shown = [_shown(connection, row.id, row.is_queued, known) for row in ids]
        found += [one for one in shown if wanted.state in (None, one["state"])]
        if len(ids) <= limit:
            break
        before = ids[-1].id
    return found[: limit + 1]


def one(connection: "Connection", text: str) -> "tuple[Queued | None, list[Run]]":
    """Return a run by its id or the beginning of it: its entry, if it was queued, and its attempts, oldest first."""
    try:
        entry = queue.find(connection, text)
    except Mistake as error:
        if error.code != "RUN_UNKNOWN":
            raise
        return None, [runs.run(connection, text)]
    names = [entry.id, *(f"{entry.id}-{number}" for number in range(2, entry.attempt + 1))]
    return entry, list(_exact(connection, names))


def shown(entry: "Queued | None", attempts: "list[Run]") -> dict[str, Any]:
    """Return a run with everything that is known of it."""
    if entry is None:
        return whole_json(run_json(attempts[-1]), attempts)
    return whole_json(entry_json(entry), attempts, entry)


def _shown(connection: "Connection", name: str, is_queued: bool, known: "dict[str, Queued]") -> dict[str, Any]:
    if is_queued:
        return entry_json(known.get(name) or queue.find(connection, name))
    return run_json(runs.run(connection, name))


def _exact(connection: "Connection", names: list[str]) -> "Iterator[Run]":
    for name in names:
        known = connection.execute(sa.select(schema.runs.c.id).where(schema.runs.c.id == name)).first()
        if known is not None:
            yield runs.run(connection, name)


def _ids(wanted: Filter, limit: int, before: str | None) -> "sa.CompoundSelect[Any]":
    """Return the query for the ids of both; an attempt of what was queued is part of its entry."""
    queued, ran = schema.queue.c, schema.runs.c
    entries = sa.select(queued.id.label("id"), sa.true().label("is_queued")).where(queued.kind == "run")
    entry = sa.select(queued.id).where(queued.id == sa.func.substr(ran.id, 1, _ID_LENGTH)).exists()
    others = sa.select(ran.id.label("id"), sa.false().label("is_queued")).where(~entry)
    if wanted.state is not None:
        states = (
            {wanted.state, runs.RUNNING} if wanted.state == runs.LOST else {wanted.state}
        )  # nobody may have said so
        entries, others = entries.where(queued.state == wanted.state), others.where(ran.state.in_(states))
    if wanted.branch is not None:
        entries, others = entries.where(queued.branch == wanted.branch), others.where(ran.branch == wanted.branch)
    if wanted.cause is not None:
        entries, others = entries.where(queued.cause == wanted.cause), others.where(sa.false())
    if before is not None:
        entries, others = entries.where(queued.id < before), others.where(ran.id < before)
    return sa.union_all(entries, others).order_by(sa.desc("id")).limit(limit)
