"""Squash: remove expired commits of streams that nothing needs from the history.

Works in small batches, each a short transaction that relinks the history: the successor of a removed commit gets the
parent of the removed commit. So a kill between two batches leaves a consistent history, and the next gc continues.
Never touches a file.
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
from runnel.lake.flow_state.ingest_position import STATE_PATH
from runnel.lake.upkeep.gc.squashable_commits import SquashableCommit, find_squashable
from runnel.lake.upkeep.gc.sweep import LeaseCheck

if TYPE_CHECKING:
    from runnel.lake.store import Store

SQUASH_BEFORE_COMMIT = declare("squash.before_commit", "a batch of commits is taken out, the transaction is open")
SQUASH_BATCH = declare("squash.batch", "a batch of commits is taken out of the history")
AT_ONCE = 200


def squash(store: "Store", limit: str, check_lease: LeaseCheck) -> int:
    """Remove the commits that expired before `limit` and are not needed, and return how many were removed.

    A commit that is unneeded now stays so: only an unexpired commit can be forked, pinned, tagged or merged.
    """
    commits = store.db.read(lambda connection: find_squashable(connection, limit))
    for start in range(0, len(commits), AT_ONCE):
        started = time.monotonic()
        store.db.write(partial(_drop_batch, commits[start : start + AT_ONCE], check_lease))
        reach(SQUASH_BATCH)
        time.sleep(min(time.monotonic() - started, 0.5))  # leave half of the time to writers that publish
    return len(commits)


def _drop_batch(batch: Sequence[SquashableCommit], check_lease: LeaseCheck, connection: Connection) -> None:
    check_lease(connection)
    ids = [commit.id for commit in batch]
    _unlink_rows(connection, schema.changes, schema.changes.c.commit_id.in_(ids), ("line", "table_name"), "before")
    _unlink_rows(connection, schema.commits, schema.commits.c.id.in_(ids), ("line",), "parent")
    _drop_states(connection, batch)
    reach(SQUASH_BEFORE_COMMIT)


def _unlink_rows(
    connection: Connection,
    table: sa.Table,
    removal_filter: "sa.ColumnElement[bool]",
    chain_columns: tuple[str, ...],
    link_column: str,
) -> None:
    """Remove rows from their chains: the next row gets the link of the first removed row."""
    columns, seq = table.c, table.c.seq
    keys = [columns[name] for name in chain_columns]
    rows = connection.execute(
        sa.select(*keys, seq, columns[link_column]).where(removal_filter).order_by(*keys, seq)
    ).all()
    connection.execute(table.delete().where(removal_filter))
    for _, chain_rows in groupby(rows, lambda row: row[: len(keys)]):
        linked_seq: float = -math.inf
        for row in chain_rows:
            if row.seq < linked_seq:
                continue  # an earlier removed row has the same successor
            chain_filter = sa.and_(*(key == row._mapping[key.name] for key in keys))
            next_query = sa.select(seq).where(chain_filter, seq > row.seq).order_by(seq).limit(1)
            next_seq = connection.execute(next_query).scalar()
            if next_seq is None:
                break
            values = {link_column: row._mapping[link_column]}
            connection.execute(table.update().where(chain_filter, seq == next_seq).values(values))
            linked_seq = next_seq


def _drop_states(connection: Connection, batch: Sequence[SquashableCommit]) -> None:
    columns = schema.ingested.c
    seqs_by_table: dict[tuple[str, str], list[int]] = {}
    for commit in batch:
        for table in commit.state_tables:
            seqs_by_table.setdefault((commit.line, table), []).append(commit.seq)
    for (line, table), seqs in seqs_by_table.items():
        row_filters = (
            columns.line == line,
            columns.table_name == table,
            columns.path == STATE_PATH,
            columns.seq.in_(seqs),
        )
        connection.execute(schema.ingested.delete().where(*row_filters))
