"""Take a source's table back to an earlier version together with its position, so that the source is read again.

A revert takes rows back and keeps the position: what was bad is not read again. A rewind takes both back, in one
commit, so that the next run reads everything since, each row once. Its quarantine table goes along.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Mistake, nearest
from runnel.lake.flow_state.ingest_position import STATE, Seen
from runnel.lake.flow_state.ingest_positions import has_ingested, position
from runnel.lake.history.adopt import adopt
from runnel.lake.history.commits import Change, Commit, Version, sequence, version_at
from runnel.lake.history.refs import head, readable
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish_again
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store

KIND = "rewind"


@dataclass(frozen=True)
class Rewound:
    """What a rewind did, or would do: `files` are read again, or everything since a state where it is no files."""

    table: TableName
    to: Commit
    files: int
    has_state: bool
    drops: bool  # the table was not there yet
    commit: Commit | None = None


def rewind(
    store: "Store",
    table: TableName,
    to: str,
    *,
    branch: str = "main",
    also: tuple[TableName, ...] = (),
    dry: bool = False,
) -> Rewound:
    """Make a source's table, and the tables `also` where they exist, what they were at a ref, with its position."""
    adopt(store.db, branch)
    target = readable(store.commit(to))
    with pinned(store.db, "write") as pin, pinned(store.db, "read", target.id):
        told: list[Rewound] = []

        def draft() -> Draft:
            planned = store.db.read(sequence)
            changes, seen, found = store.db.read(lambda con: _difference(con, store, branch, target, table, also))
            told.append(found)
            if not changes and not seen:
                what = f"`{table}` and what was read for it are as they were at {target.id[:8]} already"
                raise Mistake("REWIND_NOTHING", what, fix=f"`runnel log {table}` lists its versions")
            message = f"rewind {table} to {target.id[:8]}"
            return Draft(
                branch,
                message,
                store.author,
                changes,
                kind=KIND,
                planned=planned,
                pin=pin,
                seen=tuple((table, one) for one in seen),
            )

        if dry:
            draft()
            return told[-1]
        commit = publish_again(store.db, draft)
    return replace(told[-1], commit=commit)


def _difference(
    connection: Connection,
    store: "Store",
    branch: str,
    target: Commit,
    table: TableName,
    also: tuple[TableName, ...],
) -> tuple[tuple[Change, ...], tuple[Seen, ...], Rewound]:
    tip = head(connection, branch)
    if not has_ingested(connection, tip, table):
        raise _no_source(connection, store, tip, table)
    now, then = position(connection, tip, table), position(connection, target, table)
    version = version_at(connection, target, table)
    seen = _seen(now, then if version is not None else {})
    changes = [
        _change(one, version_at(connection, tip, one), version_at(connection, target, one)) for one in (table, *also)
    ]
    files = sum(one.path != STATE for one in seen)
    found = Rewound(table, target, files, any(one.path == STATE for one in seen), version is None)
    return tuple(change for change in changes if change is not None), seen, found


def _seen(now: Mapping[str, Seen], then: Mapping[str, Seen]) -> tuple[Seen, ...]:
    """Return what makes the position what it was: what was read since is gone."""
    back = [one for path, one in then.items() if now.get(path) != one]
    gone = [one.removed() for path, one in now.items() if path not in then and one != one.removed()]
    return (*back, *gone)


def _change(table: TableName, now: Version | None, then: Version | None) -> Change | None:
    if now == then:
        return None
    return Change(table, now.location if now else None, then.location if then else None, then.content if then else None)


def _no_source(connection: Connection, store: "Store", tip: Commit, table: TableName) -> Mistake:
    if version_at(connection, tip, table) is None:
        names = [str(name) for name in store.state(tip.branch)]
        close = nearest(str(table), names)
        what = f"there is no table `{table}` on branch `{tip.branch}`" + (f"; close: `{close}`" if close else "")
        return Mistake("REWIND_UNKNOWN", what, fix="`runnel tables` lists them")
    what = f"nothing was read into `{table}` by a source: there is nothing to read again"
    return Mistake("REWIND_NO_SOURCE", what, fix="runnel revert COMMIT takes back what a task or a person wrote")
