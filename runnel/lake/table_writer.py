"""Edit a table of a branch and publish it; retry on the new version after a version conflict."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


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
