"""Choose the side of a merge for a table that a feed fills: the side that has read further, with its state.

A table and its state belong together, so a merge takes one side completely. The next run reads again what only the
other side had read: each row is there once, and none is lost. Pure, except for reading commits from the database.
"""

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_position import STATE_PATH
from runnel.lake.history.commits import walk_lines

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.history.commits import Commit
    from runnel.lake.merge.merge_sources import ThreeWayPositions
    from runnel.lake.store import Store
    from runnel.names import TableName


def is_fed_on_both_sides(positions: "ThreeWayPositions") -> bool:
    """Return whether a feed has added rows to a table on both sides since their common base."""
    states = [position.get(STATE_PATH) for position in (positions.ours, positions.theirs)]
    return all(
        state is not None and state.state is not None and state != positions.base.get(STATE_PATH) for state in states
    )


def has_theirs_read_further(
    store: "Store", positions: "ThreeWayPositions", tips: "tuple[Commit, Commit]", table: "TableName"
) -> bool:
    """Return whether their side has read all that ours has, and more; if both read equally far, whether it read later.

    `tips` are the heads of our side and of theirs.
    """
    ours, theirs = (
        select_ordered(json.loads(position[STATE_PATH].state or "{}"))
        for position in (positions.ours, positions.theirs)
    )
    is_further, is_behind = is_at_least(theirs, ours), is_at_least(ours, theirs)
    if is_further and is_behind:
        our_sequence, their_sequence = (
            store.db.read(partial(_read_state_sequence, tip=tip, table=table)) for tip in tips
        )
        return their_sequence > our_sequence
    return is_further and not is_behind


def select_ordered(state: Any) -> Any:
    """Return the parts of a state that only grow, without parts that have no order, such as checksums.

    >>> select_ordered({"watermark": "2026-01-02", "rows": 3, "window": [1, "77"], "declared": "1f"})
    {'watermark': '2026-01-02'}
    """
    return (
        {name: value for name, value in state.items() if name not in _UNORDERED_KEYS}
        if isinstance(state, dict)
        else state
    )


def is_at_least(state: Any, other: Any) -> bool:
    """Return whether a state is nowhere behind another: every number and text in it is equal or greater.

    >>> is_at_least({"offsets": {"t": {"0": 5, "1": 2}}}, {"offsets": {"t": {"0": 4}}})
    True
    >>> is_at_least({"offsets": {"t": {"0": 5, "1": 2}}}, {"offsets": {"t": {"0": 4, "1": 3}}})
    False
    >>> is_at_least({"watermark": "2026-01-02"}, {"watermark": "2026-01-01"}), is_at_least({"a": 1}, {"a": "x"})
    (True, False)
    """
    if isinstance(state, dict) and isinstance(other, dict):
        return all(key in state and is_at_least(state[key], value) for key, value in other.items())
    if isinstance(state, bool) or isinstance(other, bool) or state is None or other is None:
        return bool(state == other)
    if isinstance(state, int | float) and isinstance(other, int | float):
        return state >= other
    if isinstance(state, str) and isinstance(other, str):
        return state >= other
    return bool(state == other)


def is_changed_only_by_runs(store: "Store", base: "Commit", tip: "Commit", table: "TableName") -> bool:
    """Return whether only runs changed a table between one commit and another."""
    return store.db.read(lambda connection: _is_changed_only_by_runs(connection, base, tip, table))


def _is_changed_only_by_runs(connection: "Connection", base: "Commit", tip: "Commit", table: "TableName") -> bool:
    changes, commits = schema.changes.c, schema.commits.c
    for line, seq in walk_lines(connection, tip.line, tip.seq):
        query = (
            sa.select(commits.kind)
            .join(schema.changes, changes.commit_id == commits.id)
            .where(changes.line == line, changes.table_name == str(table), changes.seq <= seq)
            .where(changes.seq > (base.seq if line == base.line else 0))
        )
        if any(kind not in _KINDS_OF_RUNS for kind in connection.execute(query).scalars()):
            return False
        if line == base.line:
            break
    return True


def _read_state_sequence(connection: "Connection", tip: "Commit", table: "TableName") -> int:
    """Return the sequence of the commit that wrote the state which a table has at `tip`."""
    columns = schema.ingested.c
    for line, seq in walk_lines(connection, tip.line, tip.seq):
        conditions = (
            columns.line == line,
            columns.table_name == str(table),
            columns.path == STATE_PATH,
            columns.seq <= seq,
        )
        sequence = connection.execute(sa.select(sa.func.max(columns.seq)).where(*conditions)).scalar()
        if sequence is not None:
            return int(sequence)
    return 0


_UNORDERED_KEYS = frozenset({"declared", "rows", "window", "unmarked", "ids", "digest", "of", "etag", "modified"})
_KINDS_OF_RUNS = frozenset({"run", "stream", "compact", "merge"})  # stream: continuous ingest of a source
