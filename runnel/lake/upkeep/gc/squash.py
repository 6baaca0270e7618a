"""Squash: take the commits of streams that expired and that nothing needs out of the history.

In small batches, each a short transaction that ties the ends together: what followed what is gone follows what was
before it. So a kill between two batches leaves a history that is whole, and the next gc goes on. Never touches a file.
"""

import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.failpoint import declare, reach
from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_position import STATE
from runnel.lake.upkeep.gc.squashable_commits import Surplus, surplus
from runnel.lake.upkeep.gc.sweep import Hold

if TYPE_CHECKING:
    from runnel.lake.store import Store

SQUASH_BEFORE_COMMIT = declare("squash.before_commit", "a batch of commits is taken out, the transaction is open")
SQUASH_BATCH = declare("squash.batch", "a batch of commits is taken out of the history")
AT_ONCE = 200


def squash(store: "Store", limit: str, hold: Hold) -> int:
    """Take out what expired before a moment and is not needed, and return how many commits that were.

    What is unneeded now stays so: only what has not expired can be forked, pinned, tagged or merged.
    """
    found = store.db.read(lambda connection: surplus(connection, limit))
    for start in range(0, len(found), AT_ONCE):
        started = time.monotonic()
        store.db.write(partial(_drop, found[start : start + AT_ONCE], hold))
        reach(SQUASH_BATCH)
        time.sleep(min(time.monotonic() - started, 0.5))  # those who publish have the lane half of the time
    return len(found)


def _drop(batch: Sequence[Surplus], hold: Hold, connection: Connection) -> None:
    hold(connection)
    ids = [one.id for one in batch]
    _take_out(connection, schema.changes, schema.changes.c.commit_id.in_(ids), ("line", "table_name"), "before")
    _take_out(connection, schema.commits, schema.commits.c.id.in_(ids), ("line",), "parent")
    _drop_states(connection, batch)
    reach(SQUASH_BEFORE_COMMIT)


def _take_out(
    connection: Connection, table: sa.Table, gone: "sa.ColumnElement[bool]", chain: tuple[str, ...], link: str
) -> None:
    """Take rows out of their chains: what follows is linked to what the first row that is gone was linked to."""
    columns, seq = table.c, table.c.seq
    keys = [columns[name] for name in chain]
    rows = connection.execute(sa.select(*keys, seq, columns[link]).where(gone).order_by(*keys, seq)).all()
    connection.execute(table.delete().where(gone))
    for _, links in groupby(rows, lambda row: row[: len(keys)]):
        follower: float = -math.inf
        for row in links:
            if row.seq < follower:
                continue  # it follows one before this too
            here = sa.and_(*(key == row._mapping[key.name] for key in keys))
            left = sa.select(seq).where(here, seq > row.seq).order_by(seq).limit(1)
            found = connection.execute(left).scalar()
            if found is None:
                break
            values = {link: row._mapping[link]}
            connection.execute(table.update().where(here, seq == found).values(values))
            follower = found


def _drop_states(connection: Connection, batch: Sequence[Surplus]) -> None:
    columns = schema.ingested.c
    gone: dict[tuple[str, str], list[int]] = {}
    for one in batch:
        for table in one.states:
            gone.setdefault((one.line, table), []).append(one.seq)
    for (line, table), seqs in gone.items():
        here = (columns.line == line, columns.table_name == table, columns.path == STATE, columns.seq.in_(seqs))
        connection.execute(schema.ingested.delete().where(*here))
