"""Look up declarations of a task's tables: in the modules that the test imported, else in the project's files."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from runnel.declare.loading.loader import find_flow_files, load_flow
from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Flow, Source, Task
from runnel.declare.model.task_draft import TaskDraft
from runnel.declare.registry import current_registry
from runnel.declare.settings import find_root, load_settings
from runnel.errors import Mistake
from runnel.names import TableName
from runnel.testing.session import session


def resolve_input_table(text: str, own_table: TableName, project_file: Path | None) -> TableName:
    """Return the table that an input of the task of `own_table` refers to; an undeclared one is named `given.NAME`.

    `project_file` is a file of the project whose declarations are used if no imported module declares the table.
    """
    if "." in text:
        return TableName.parse_unchecked(text)
    for declarations in _read_declarations(project_file):
        candidates = [
            declaration.table
            for declaration in declarations
            if declaration.table.name == text and declaration.table != own_table
        ]
        if len(candidates) == 1:
            return candidates[0]
    return TableName("given", text)


def find_declared_columns(table: TableName, project_file: Path | None) -> tuple[Column, ...] | None:
    """Return the declared columns of a table; None if its source or task declares none."""
    for declarations in _read_declarations(project_file):
        for declaration in declarations:
            if declaration.table == table:
                return declaration.origin.schema if isinstance(declaration, Source) else declaration.options.schema
    return None


def _read_declarations(project_file: Path | None) -> Iterator[list[Source | TaskDraft | Task]]:
    registry = current_registry()
    yield [*registry.sources, *registry.tasks]
    root = _find_project_root(project_file)
    if root is not None:
        stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in find_flow_files(root))
        yield list(_load_cached_flow(root, stamps))


def _find_project_root(project_file: Path | None) -> Path | None:
    try:
        return find_root(project_file.absolute().parent) if project_file is not None else None
    except Mistake:
        return None


@lru_cache(maxsize=8)
def _load_cached_flow(root: Path, _stamps: tuple[tuple[str, int, int], ...]) -> Flow:
    """Return the flow of the project in `root`; `_stamps` invalidate the cache if a file changed."""
    return load_flow(load_settings(root, environ=os.environ), start_spark=session)
