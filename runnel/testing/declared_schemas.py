"""What is declared about the tables around a task: by the modules that a test imported, else by the project's files."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from runnel.declare.loading.loader import flow_files, load_flow
from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Flow, Source, Task
from runnel.declare.model.task_draft import Draft
from runnel.declare.registry import current
from runnel.declare.settings import find_root, load
from runnel.errors import Mistake
from runnel.names import TableName
from runnel.testing.session import session


def table_of(text: str, own: TableName, near: Path | None) -> TableName:
    """Return the table that an input of the task of `own` means; one that nothing declares is called `given.NAME`.

    `near` is a file of the project that is asked where no imported module declares such a table.
    """
    if "." in text:
        return TableName.stored(text)
    for declared in _declared(near):
        meant = [one.table for one in declared if one.table.name == text and one.table != own]
        if len(meant) == 1:
            return meant[0]
    return TableName("given", text)


def columns_of(table: TableName, near: Path | None) -> tuple[Column, ...] | None:
    """Return the declared columns of a table; None where its source or task declares none."""
    for declared in _declared(near):
        for one in declared:
            if one.table == table:
                return one.origin.schema if isinstance(one, Source) else one.options.schema
    return None


def _declared(near: Path | None) -> Iterator[list[Source | Draft | Task]]:
    registry = current()
    yield [*registry.sources, *registry.tasks]
    root = _root(near)
    if root is not None:
        stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in flow_files(root))
        yield list(_flow(root, stamps))


def _root(near: Path | None) -> Path | None:
    try:
        return find_root(near.absolute().parent) if near is not None else None
    except Mistake:
        return None


@lru_cache(maxsize=8)
def _flow(root: Path, stamps: tuple[tuple[str, int, int], ...]) -> Flow:
    """Return what the project in `root` declares; `stamps` make a changed file count."""
    return load_flow(load(root, environ=os.environ), start_spark=session)
