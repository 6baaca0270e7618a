"""Look through compactions: a file that only replaces others brings no rows and takes none away.

A compaction's commit records which files each new file replaces; reads nothing but that.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.diff.file_delta import Delta, delta

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_AT_ONCE = 16
_Group = tuple[frozenset[str], frozenset[str]]  # files that came, and the files that they replace


def change(store: "Store", table: "TableName", before: str, after: str) -> Delta:
    """Return the files in which two versions of a table differ, without those that were only compacted."""
    found = delta(store, before, after)
    if not found.added or not found.removed or any(not entry.is_data for entry in (*found.added, *found.removed)):
        return found  # deletes are part of what a compaction applies, and then files alone don't tell
    groups: list[_Group] = []
    added, removed = frozenset(entry.path for entry in found.added), frozenset(entry.path for entry in found.removed)
    least, most = None, _AT_ONCE
    while True:  # the newest first, and no more than needed: a stream's table is compacted again and again
        rows = store.db.read(partial(_rows, table=table, least=least, most=most))
        groups += [group for _, detail in rows for group in _groups(detail)]
        came, went = _without(groups, added, removed)
        if len(rows) < most or not came or not went:
            break
        least, most = rows[-1][0], 2 * most
    return Delta(
        tuple(entry for entry in found.added if entry.path in came),
        tuple(entry for entry in found.removed if entry.path in went),
    )


def _without(groups: list[_Group], added: frozenset[str], removed: frozenset[str]) -> tuple[set[str], set[str]]:
    """Return the files that came and went, without those of compactions."""
    came, went = set(added), set(removed)
    for place, (made, _) in enumerate(groups):
        gone = _origin(groups, place)
        for here, there in ((came, went), (went, came)):  # the other way round after a revert
            if made <= here and gone <= there:
                here -= made
                there -= gone
    return came, went


def _origin(groups: list[_Group], place: int) -> frozenset[str]:
    """Return the files that a compaction replaced, looking through the compactions before it."""
    found = groups[place][1]
    for made, gone in groups[place + 1 :]:
        if made <= found:
            found = (found - made) | gone
    return found


def _rows(connection: Connection, table: "TableName", least: int | None, most: int) -> list[tuple[int, str]]:
    """Return what compactions of a table recorded, newest first, those before a sequence number.

    From the compactions to their changes, never through all changes of the table: a stream makes very many.
    """
    changes, commits = schema.changes.c, schema.commits.c
    query = (
        sa.select(commits.seq, changes.detail)
        .join(schema.changes, commits.id == changes.commit_id)
        .where(commits.kind == sa.literal_column("'compact'"), changes.table_name == str(table))
        .order_by(commits.seq.desc())
        .limit(most)
    )
    rows = connection.execute(query if least is None else query.where(commits.seq < least))
    return [(int(row.seq), str(row.detail)) for row in rows]


def _groups(detail: str) -> Iterator[_Group]:
    """Yield what one compaction did."""
    made: dict[frozenset[str], set[str]] = {}
    for file, gone in json.loads(detail).get("replaces", {}).items():
        made.setdefault(frozenset(gone), set()).add(file)
    yield from ((frozenset(files), gone) for gone, files in made.items())
