"""Look through compactions: a file that only replaces others brings no rows and takes none away.

A compaction's commit records which files each new file replaces; reads nothing but that.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake import schema
from runnel.lake.delta import Delta, delta

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_Group = tuple[frozenset[str], frozenset[str]]  # files that came, and the files that they replace


def change(store: "Store", table: "TableName", before: str, after: str) -> Delta:
    """Return the files in which two versions of a table differ, without those that were only compacted."""
    found = delta(store, before, after)
    if not found.added or not found.removed or any(not entry.is_data for entry in (*found.added, *found.removed)):
        return found  # deletes are part of what a compaction applies, and then files alone don't tell
    groups = store.db.read(lambda connection: list(_groups(connection, table)))
    added, removed = {entry.path for entry in found.added}, {entry.path for entry in found.removed}
    for place, (made, _) in enumerate(groups):
        gone = _origin(groups, place)
        for here, there in ((added, removed), (removed, added)):  # the other way round after a revert
            if made <= here and gone <= there:
                here -= made
                there -= gone
    return Delta(
        tuple(entry for entry in found.added if entry.path in added),
        tuple(entry for entry in found.removed if entry.path in removed),
    )


def _origin(groups: list[_Group], place: int) -> frozenset[str]:
    """Return the files that a compaction replaced, looking through the compactions before it."""
    found = groups[place][1]
    for made, gone in groups[place + 1 :]:
        if made <= found:
            found = (found - made) | gone
    return found


def _groups(connection: Connection, table: "TableName") -> Iterator[_Group]:
    """Yield what each compaction of a table did, newest first.

    From the compactions to their changes, never through all changes of the table: a stream makes very many.
    """
    changes, commits = schema.changes.c, schema.commits.c
    query = (
        sa.select(changes.detail)
        .join(schema.commits, commits.id == changes.commit_id)
        .where(commits.kind == "compact", changes.table_name == str(table))
        .order_by(changes.seq.desc())
    )
    for text in connection.execute(query).scalars():
        made: dict[frozenset[str], set[str]] = {}
        for file, gone in json.loads(text).get("replaces", {}).items():
            made.setdefault(frozenset(gone), set()).add(file)
        yield from ((frozenset(files), gone) for gone, files in made.items())
