"""Build the changes of a commit from the new versions of tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.lake.history.commits import CommitChange

if TYPE_CHECKING:
    from runnel.lake.history.commits import LakeState
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName


@dataclass(frozen=True)
class TableUpdate:
    """The new version of a table, None to remove the table, and the detail that the commit records with it."""

    table: "TableName"
    version: "TableVersion | None"
    detail: Mapping[str, object] = field(default_factory=dict)


def table_changes(state: "LakeState", updates: Iterable[TableUpdate]) -> tuple[CommitChange, ...]:
    """Return how the updates differ from a state of the lake, in their order; updates that change nothing are left out.

    >>> from runnel.model.table_version import TableVersion
    >>> from runnel.names import TableName
    >>> orders, days = TableName("dwd", "orders"), TableName("dws", "days")
    >>> updates = [TableUpdate(orders, TableVersion("v1", "c1")), TableUpdate(days, TableVersion("v2", "c2"))]
    >>> changes = table_changes({orders: TableVersion("v1", "c1")}, updates)
    >>> [(str(change.table), change.before, change.after) for change in changes]
    [('dws.days', None, 'v2')]
    """
    changes = []
    for update in updates:
        previous, version = state.get(update.table), update.version
        if version != previous:
            before, after = previous.location if previous else None, version.location if version else None
            content = version.content if version else None
            changes.append(CommitChange(update.table, before, after, content, update.detail))
    return tuple(changes)
