"""Compute the key of a result from the task's fingerprint and the content of its inputs."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.names import TableName
from runnel.plan.slices import is_reference

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.model.table_version import TableVersion


def compute_task_key(task: "Task", digest: str, inputs: "Mapping[TableName, TableVersion]") -> str:
    """Compute the key of a task's result; references don't count, because their changes alone recompute nothing."""
    return compute_result_key(
        digest, {table: version.content for table, version in inputs.items() if not is_reference(task, table)}
    )


def compute_result_key(digest: str, contents: Mapping[TableName, str]) -> str:
    """Return the key of the result of a task with this fingerprint and inputs with these contents.

    Which parameter gets which table is part of the fingerprint.

    >>> a, b = TableName("ods", "a"), TableName("ods", "b")
    >>> compute_result_key("f", {a: "1", b: "2"}) == compute_result_key("f", {b: "2", a: "1"})
    True
    >>> compute_result_key("f", {a: "1", b: "2"}) == compute_result_key("f", {a: "2", b: "1"})
    False
    """
    inputs = sorted((str(table), content) for table, content in contents.items())
    return hashlib.sha256(repr((digest, inputs)).encode()).hexdigest()
