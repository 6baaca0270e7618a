"""Collect declarations while flow files are loaded.

A loader collects into its own registry. Without a loader, as in a notebook or a unit test, declarations go to a
default registry: declaring a table again replaces it, and a mistake is raised at once instead of collected.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from runnel.declare.caller_location import LineIndex, find_caller_location
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Alert, Schedule, Sink, Source
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.model.task_draft import TaskDraft
from runnel.errors import Mistake, RunnelError
from runnel.names import TableName

SchemaSuggester = Callable[[Files], str | None]
"""Returns the options, such as `schema="id long"`, that files need; None if it can't tell."""


@dataclass
class Registry:
    """Declared tasks, sources, sinks, schedules and alerts, in order, with the mistakes in them.

    `root` is the project's folder while a loader collects. `claimed` are tables, or last parts of their names, whose
    declaration was wrong: reading them is no further mistake. `suggest_schema` looks into files without a schema.
    """

    root: str | None = None
    tasks: list[TaskDraft] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    mistakes: list[RunnelError] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    suggest_schema: SchemaSuggester | None = None
    _line_index: LineIndex = field(default_factory=LineIndex, repr=False)

    def add(self, declaration: TaskDraft | Source | Sink | Schedule | Alert) -> None:
        """Add a declaration; without a loader it replaces the one with the same name."""
        if isinstance(declaration, TaskDraft | Source) and self.root is None:
            self.tasks[:] = [task for task in self.tasks if task.table != declaration.table]
            self.sources[:] = [source for source in self.sources if source.table != declaration.table]
        if isinstance(declaration, TaskDraft):
            self.tasks.append(declaration)
        elif isinstance(declaration, Source):
            self.sources.append(declaration)
        else:
            siblings: list[Any] = self._list_for(declaration)
            if self.root is None:
                siblings[:] = [other for other in siblings if other.name != declaration.name]
            siblings.append(declaration)

    def _list_for(self, declaration: Sink | Schedule | Alert) -> list[Any]:
        if isinstance(declaration, Sink):
            return self.sinks
        return self.schedules if isinstance(declaration, Schedule) else self.alerts

    def find_source(self, table: TableName) -> Source | None:
        """Return the last declared source of a table."""
        return next((source for source in reversed(self.sources) if source.table == table), None)

    def find_task(self, table: TableName) -> TaskDraft | None:
        """Return the last declared task of a table."""
        return next((task for task in reversed(self.tasks) if task.table == table), None)

    def report_mistake(self, mistake: RunnelError, place: SourceLocation | None = None) -> None:
        """Record a mistake, adding the location if it has none; without a loader raise it."""
        if mistake.at is None and place is not None:
            mistake.at = str(place)
        if self.root is None:
            raise mistake
        self.mistakes.append(mistake)

    def reject(self, code: str, what: str, *, at: SourceLocation | None, fix: str | None = None) -> None:
        """Create and record a mistake; without a loader raise it."""
        self.report_mistake(Mistake(code, what, fix=fix), at)

    def claim(self, name: object) -> None:
        """Remember that a failed declaration was meant to create this table."""
        if isinstance(name, str):
            self.claimed.update((name, name.rpartition(".")[2]))

    def caller_location(self) -> SourceLocation:
        """Return the user's line that is making the current declaration."""
        return find_caller_location(self.root, self._line_index)

    def save_position(self) -> tuple[int, ...]:
        """Return the current position, to pass to `rewind`."""
        return tuple(len(declarations) for declarations in self._all_lists())

    def rewind(self, position: tuple[int, ...]) -> None:
        """Remove the declarations added since a position."""
        for declarations, length in zip(self._all_lists(), position, strict=True):
            del declarations[length:]

    def _all_lists(self) -> tuple[list[Any], ...]:
        return self.tasks, self.sources, self.sinks, self.schedules, self.alerts, self.mistakes


_DEFAULT = Registry()
_CURRENT: ContextVar[Registry] = ContextVar("runnel_registry", default=_DEFAULT)


def current_registry() -> Registry:
    """Return the registry that currently collects declarations."""
    return _CURRENT.get()


@contextmanager
def collect_declarations(root: str, suggest_schema: SchemaSuggester | None = None) -> Iterator[Registry]:
    """Collect the declarations made in the block in a new registry for the project in `root`."""
    registry = Registry(root, suggest_schema=suggest_schema)
    token = _CURRENT.set(registry)
    try:
        yield registry
    finally:
        _CURRENT.reset(token)
