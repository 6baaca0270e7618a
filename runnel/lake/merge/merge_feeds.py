"""Which side of a merge a table takes that a feed fills: the one that has read further, with its state.

A table and its state belong together, so one side is taken whole. What only the other side had read is read again by
the next run: each row is there once, and none is lost. Pure but for what the database says about commits.
"""

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_position import STATE
from runnel.lake.history.commits import path

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.history.commits import Commit
    from runnel.lake.merge.merge_sources import Sources
    from runnel.lake.store import Store
    from runnel.names import TableName


def is_fed(read: "Sources") -> bool:
    """Tell whether a feed has given a table its rows on both sides since they parted."""
    moved = [at.get(STATE) for at in (read.ours, read.theirs)]
    return all(one is not None and one.state is not None and one != read.base.get(STATE) for one in moved)


def theirs_is_further(store: "Store", read: "Sources", tips: "tuple[Commit, Commit]", table: "TableName") -> bool:
    """Tell whether their side has read all that ours has, and more; where that can't be told, whether it read later.

    `tips` are the heads of our side and of theirs.
    """
    ours, theirs = (ordered(json.loads(at[STATE].state or "{}")) for at in (read.ours, read.theirs))
    is_further, is_behind = reaches(theirs, ours), reaches(ours, theirs)
    if is_further and is_behind:
        mine, other = (store.db.read(partial(_read_at, tip=tip, table=table)) for tip in tips)
        return other > mine
    return is_further and not is_behind


def ordered(state: Any) -> Any:
    """Return what grows in a state, without what only tells one from another, such as checksums.

    >>> ordered({"watermark": "2026-01-02", "rows": 3, "window": [1, "77"], "declared": "1f"})
    {'watermark': '2026-01-02'}
    """
    return {name: one for name, one in state.items() if name not in _APART} if isinstance(state, dict) else state


def reaches(one: Any, other: Any) -> bool:
    """Tell whether a state is nowhere behind another: every number and text in it is as great or greater.

    >>> reaches({"offsets": {"t": {"0": 5, "1": 2}}}, {"offsets": {"t": {"0": 4}}})
    True
    >>> reaches({"offsets": {"t": {"0": 5, "1": 2}}}, {"offsets": {"t": {"0": 4, "1": 3}}})
    False
    >>> reaches({"watermark": "2026-01-02"}, {"watermark": "2026-01-01"}), reaches({"a": 1}, {"a": "x"})
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return all(key in one and reaches(one[key], value) for key, value in other.items())
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return bool(one == other)
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one >= other
    if isinstance(one, str) and isinstance(other, str):
        return one >= other
    return bool(one == other)


def only_runs(store: "Store", base: "Commit", tip: "Commit", table: "TableName") -> bool:
    """Tell whether nobody but runs changed a table on the way from one commit to another."""
    return store.db.read(lambda connection: _only_runs(connection, base, tip, table))


def _only_runs(connection: "Connection", base: "Commit", tip: "Commit", table: "TableName") -> bool:
    changes, commits = schema.changes.c, schema.commits.c
    for line, seq in path(connection, tip.line, tip.seq):
        query = (
            sa.select(commits.kind)
            .join(schema.changes, changes.commit_id == commits.id)
            .where(changes.line == line, changes.table_name == str(table), changes.seq <= seq)
            .where(changes.seq > (base.seq if line == base.line else 0))
        )
        if any(kind not in _OF_RUNS for kind in connection.execute(query).scalars()):
            return False
        if line == base.line:
            break
    return True


def _read_at(connection: "Connection", tip: "Commit", table: "TableName") -> int:
    """Return when, as a sequence number, the state was written that a table has at a commit."""
    columns = schema.ingested.c
    for line, seq in path(connection, tip.line, tip.seq):
        here = (columns.line == line, columns.table_name == str(table), columns.path == STATE, columns.seq <= seq)
        found = connection.execute(sa.select(sa.func.max(columns.seq)).where(*here)).scalar()
        if found is not None:
            return int(found)
    return 0


_APART = frozenset({"declared", "rows", "window", "unmarked", "ids", "digest", "of", "etag", "modified"})
_OF_RUNS = frozenset({"run", "stream", "compact", "merge"})  # stream: of a source that is taken in on and on
