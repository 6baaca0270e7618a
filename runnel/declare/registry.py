"""What is being declared now, and by whom.

A loader collects into a registry of its own. Outside of one, as in a notebook or a unit test, declarations go to a
default registry: declaring a table again replaces it, and a mistake is raised at once instead of collected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from runnel.declare.caller_location import Lines, here
from runnel.declare.model.flow import Alert, Schedule, Sink, Source
from runnel.declare.model.source_location import Place
from runnel.declare.model.task_draft import Draft
from runnel.errors import Mistake, RunnelError
from runnel.names import TableName


@dataclass
class Registry:
    """Declared tasks, sources, sinks, schedules and alerts, in order, with the mistakes made on the way.

    `root` is the project's folder while a loader collects. `claimed` are tables, or last parts of their names, whose
    declaration was wrong: who reads them made no mistake.
    """

    root: str | None = None
    tasks: list[Draft] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    mistakes: list[RunnelError] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    _known: Lines = field(default_factory=Lines, repr=False)

    def add(self, made: Draft | Source | Sink | Schedule | Alert) -> None:
        """Keep what was declared; outside of a loader it replaces what had its name."""
        if isinstance(made, Draft | Source) and self.root is None:
            self.tasks[:] = [task for task in self.tasks if task.table != made.table]
            self.sources[:] = [source for source in self.sources if source.table != made.table]
        if isinstance(made, Draft):
            self.tasks.append(made)
        elif isinstance(made, Source):
            self.sources.append(made)
        else:
            named: list[Any] = self._named(made)
            if self.root is None:
                named[:] = [other for other in named if other.name != made.name]
            named.append(made)

    def _named(self, made: Sink | Schedule | Alert) -> list[Any]:
        if isinstance(made, Sink):
            return self.sinks
        return self.schedules if isinstance(made, Schedule) else self.alerts

    def source_of(self, table: TableName) -> Source | None:
        """Return the source that was last declared for a table."""
        return next((source for source in reversed(self.sources) if source.table == table), None)

    def task_of(self, table: TableName) -> Draft | None:
        """Return the task that was last declared for a table."""
        return next((task for task in reversed(self.tasks) if task.table == table), None)

    def note(self, mistake: RunnelError, place: Place | None = None) -> None:
        """Keep a mistake, with its place if it has none yet; outside of a loader raise it."""
        if mistake.at is None and place is not None:
            mistake.at = str(place)
        if self.root is None:
            raise mistake
        self.mistakes.append(mistake)

    def wrong(self, code: str, what: str, *, at: Place | None, fix: str | None = None) -> None:
        """Keep a new mistake; outside of a loader raise it."""
        self.note(Mistake(code, what, fix=fix), at)

    def claim(self, name: object) -> None:
        """Remember that someone meant to make this table."""
        if isinstance(name, str):
            self.claimed.update((name, name.rpartition(".")[2]))

    def here(self) -> Place:
        """Return the user's line that is declaring."""
        return here(self.root, self._known)

    def mark(self) -> tuple[int, ...]:
        """Return where it stands, for `rewind`."""
        return tuple(len(kept) for kept in self._lists())

    def rewind(self, mark: tuple[int, ...]) -> None:
        """Forget what was declared since."""
        for kept, length in zip(self._lists(), mark, strict=True):
            del kept[length:]

    def _lists(self) -> tuple[list[Any], ...]:
        return self.tasks, self.sources, self.sinks, self.schedules, self.alerts, self.mistakes


_DEFAULT = Registry()
_CURRENT: ContextVar[Registry] = ContextVar("runnel_registry", default=_DEFAULT)


def current() -> Registry:
    """Return the registry that declarations go to now."""
    return _CURRENT.get()


@contextmanager
def collecting(root: str) -> Iterator[Registry]:
    """Let declarations go to a new registry for the project in `root`."""
    registry = Registry(root)
    token = _CURRENT.set(registry)
    try:
        yield registry
    finally:
        _CURRENT.reset(token)
