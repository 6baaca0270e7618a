"""Edit a table of a branch and publish it; retry on the new version after a version conflict."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile

from runnel.errors import Conflict
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def append_files(
    store: "Store",
    branch: str,
    table: "TableName",
    files: Sequence[DataFile],
    message: str,
    *,
    base: str,
    pin: str | None = None,
) -> Commit:
    """Add data files to an existing table, and publish it.

    The files were written for the version `base`. They fit any later version, because columns and partitions are
    identified by id, unless the table was dropped and created again.
    """

    def build_edit(version: TableVersion) -> VersionEdit:
        if load_metadata(store, version.location).table_uuid != load_metadata(store, base).table_uuid:
            what = f"`{table}` was dropped and created again on branch `{branch}` while rows were written to it"
            raise Conflict("WRITE_TABLE_REPLACED", what, fix="repeat the command: it writes to the new table")
        return VersionEdit(added=files)

    return publish_edit(store, branch, table, build_edit, message, pin=pin)


def publish_edit(
    store: "Store",
    branch: str,
    table: "TableName",
    build_edit: Callable[[TableVersion], VersionEdit],
    message: str,
    *,
    pin: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Commit:
    """Publish the edit that `build_edit` returns for a table's version; call it again after a version conflict."""

    def make_draft(pin_id: str) -> CommitDraft:
        version = store.versions(store.commit(branch), [table])[table]
        version_edit = build_edit(version)
        staged_location = stage_version(store, version.location, version_edit)
        content = version.content if version_edit.is_rewrite else None
        change = CommitChange(table, version.location, staged_location, content, detail or {})
        return CommitDraft(branch, message, store.author, (change,), pin=pin_id)

    with nullcontext(pin) if pin else acquire_pin(store.db, "write") as write_pin:
        return publish_with_retry(store.db, lambda: make_draft(write_pin))
