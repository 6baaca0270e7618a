"""Define what is staged of a change in the target database, and how."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.connect.sinks.sql.key_check import KeyCheck
    from runnel.connect.sinks.sql.writer import SinkColumn
    from runnel.model.work_place import WorkPlace


@dataclass(frozen=True)
class StagingPlan:
    """How a sink stages a change: its columns, its mode, and the check of its key."""

    sink_name: str
    columns: "tuple[SinkColumn, ...]"
    mode: str
    key_check: "KeyCheck"


@dataclass(frozen=True)
class StagedChange:
    """The staged rows to write and keys to delete, as SQL for a FROM clause, and how many rows they stand for.

    `added` is None if nothing is staged, because the delivery is made in this process; `place` says why.
    """

    place: "WorkPlace | None" = None
    added: str | None = None
    removed: str | None = None
    added_count: int = 0
    removed_count: int = 0
