"""Write to a table of a branch and publish it, starting again on the new base when somebody else was faster."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile

from runnel.errors import Conflict
from runnel.lake.history.commits import Change, Commit, Version
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish_again

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def append(
    store: "Store",
    branch: str,
    table: "TableName",
    files: Sequence[DataFile],
    message: str,
    *,
    base: str,
    pin: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Commit:
    """Add data files to a table that exists, and publish it.

    The files were written for the version `base`. Whatever others did to the table since, they still fit, because
    columns and partitions are known by id; unless it is another table by now.
    """

    def edit(version: Version) -> Edit:
        if load(store, version.location).table_uuid != load(store, base).table_uuid:
            what = f"`{table}` was dropped and created anew on branch `{branch}` while rows were written to it"
            raise Conflict("WRITE_TABLE_REPLACED", what, fix="repeat the command: it writes to the new table")
        return Edit(added=files)

    return write(store, branch, table, edit, message, pin=pin, detail=detail)


def write(
    store: "Store",
    branch: str,
    table: "TableName",
    edit: Callable[[Version], Edit],
    message: str,
    *,
    kind: str = "write",
    pin: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Commit:
    """Publish what `edit` makes of a table's version; it is asked again whenever the table has moved meanwhile."""

    def draft(held: str) -> Draft:
        version = store.versions(store.commit(branch), [table])[table]
        made = edit(version)
        staged = stage(store, version.location, made)
        content = version.content if made.rewrites else None
        change = Change(table, version.location, staged, content, detail or {})
        return Draft(branch, message, store.author, (change,), kind=kind, pin=held)

    with nullcontext(pin) if pin else pinned(store.db, "write") as held:
        return publish_again(store.db, lambda: draft(held))
