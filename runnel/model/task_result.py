"""The stored result of a task, as the lake keeps it and as the planner compares it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runnel.model.table_version import TableVersion
from runnel.names import TableName


@dataclass(frozen=True)
class TaskResult:
    """What a task computed from some inputs; usable on every branch, even if another task made that run fail.

    `inputs` are the versions used. `code` is the fingerprint as it was stored, `columns` the columns of each input
    that were used. `full_reason` says why a change of its inputs always needs a full computation; it is empty if
    computing the changed slices or rows is enough, and None if that was not analysed.
    """

    table: TableName
    key: str
    head: TableVersion
    code: Mapping[str, Any]
    inputs: Mapping[TableName, TableVersion]
    run: str
    branch: str
    made_at: str
    rows: int | None = None
    quarantine: TableVersion | None = None
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    tally: tuple[int, int, int] | None = None  # rows, and the sums of two hashes over them
    slices: int | None = None  # the number of slices, if it is computed by slices
    extends: str | None = None  # an earlier content that differs only by added columns
    full_reason: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)  # who created it and how
