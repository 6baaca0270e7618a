"""What a project declares, as values: a Flow of sources, tasks, checks, sinks and schedules.

Pure: what users call makes these (`task`, `source`, ...), the loader collects and links them, and every later room
reads them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runnel.declare.place import Place
from runnel.declare.types import Column
from runnel.names import TableName

OnFail = Literal["stop", "warn", "drop", "quarantine"]
QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Check:
    """A claim about a table. A row check has a `condition`; without one it is about the whole table.

    A row fails where its condition is false; null passes, as in SQL's own CHECK. `arguments` are what the kind needs,
    such as min and max.
    """

    kind: str  # condition, not_null, unique, accepted, between, matches, references, row_count, fresh
    text: str  # as the user wrote it, such as not_null(seller_id): what messages and the quarantine table show
    columns: tuple[str, ...] = ()
    condition: str | None = None  # Spark SQL
    arguments: tuple[tuple[str, Any], ...] = ()
    on_fail: OnFail = "stop"
    place: Place | None = field(default=None, compare=False)

    @property
    def is_row(self) -> bool:
        """Tell whether it is about each row by itself."""
        return self.condition is not None


@dataclass(frozen=True)
class Options:
    """What a task may say about itself. Pairs instead of mappings, so that it is a value."""

    by: tuple[str, ...] = ()
    by_input: tuple[tuple[str, str], ...] = ()  # parameter, expression
    reference: tuple[str, ...] = ()
    lookback: tuple[tuple[str, int], ...] = ()
    rowwise: bool = False
    key: tuple[str, ...] = ()
    volatile: bool = False
    stream: str | None = None
    trigger: str | None = None
    watermark: tuple[str, str] | None = None
    output: str | None = None
    schema: tuple[Column, ...] | None = None
    partition: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = None
    retries: int = 2
    timeout_seconds: float | None = None
    deadline: str | None = None


@dataclass(frozen=True)
class Task:
    """One small computation that makes one table. Either `function` or `sql` is set.

    `inputs` are (parameter, table), `params` (keyword parameter, value in force).
    """

    table: TableName
    name: str
    place: Place
    inputs: tuple[tuple[str, TableName], ...] = ()
    params: tuple[tuple[str, Any], ...] = ()
    function: Callable[..., Any] | None = field(default=None, compare=False)
    sql: str | None = None
    takes_spark: bool = False  # a parameter called `spark` gets the session
    options: Options = field(default_factory=Options)
    checks: tuple[Check, ...] = ()
    description: str = ""

    @property
    def reads(self) -> tuple[TableName, ...]:
        """Return the tables that it reads, each once."""
        return tuple(dict.fromkeys(table for _, table in self.inputs))

    @property
    def refers(self) -> tuple[TableName, ...]:
        """Return the tables that its checks compare with, each once: they must be there when it is checked."""
        named = (dict(check.arguments).get("table") for check in self.checks if check.kind == "references")
        return tuple(dict.fromkeys(TableName.stored(table) for table in named if table))

    @property
    def quarantine(self) -> TableName | None:
        """Return the table of rows set aside, where a check asks for it."""
        return quarantine_of(self.table) if any(check.on_fail == "quarantine" for check in self.checks) else None


@dataclass(frozen=True)
class Files:
    """A source of files on disk: what `rn.files` makes. `glob` is relative to the project's folder."""

    glob: str
    format: Literal["csv", "jsonl", "parquet"]
    schema: tuple[Column, ...] | None = None
    removed: Literal["keep", "delete"] = "keep"
    options: tuple[tuple[str, str], ...] = ()  # of CSV: delimiter, header, null, quote, encoding


@dataclass(frozen=True)
class Manual:
    """A source that people fill with `load` or `put`: what `rn.manual` makes."""

    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Source:
    """A table that comes from outside."""

    table: TableName
    origin: Files | Manual
    place: Place
    on_bad: Literal["stop", "drop", "quarantine"] = "stop"
    on_new_column: Literal["add", "ignore", "stop"] = "add"
    poll: str | None = None
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = None
    description: str = ""


@dataclass(frozen=True)
class Sink:
    """Where a table is handed on to. Only recorded so far."""

    table: TableName
    target: object
    place: Place


@dataclass(frozen=True)
class Schedule:
    """When to run what. Only recorded so far."""

    name: str
    select: str
    place: Place
    cron: str | None = None
    tz: str | None = None
    every: str | None = None
    on_change: tuple[str, ...] = ()
    at_most_every: str | None = None


@dataclass(frozen=True)
class Flow:
    """Everything that a project declares, linked: every input names a table that something makes."""

    root: Path
    tasks: Mapping[TableName, Task] = field(default_factory=dict)
    sources: Mapping[TableName, Source] = field(default_factory=dict)
    sinks: tuple[Sink, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    started_spark: Place | None = None  # the line of a flow file that needed a session while it was imported
    files: tuple[str, ...] = field(default=(), compare=False)  # the files of Python that were imported from it

    def __iter__(self) -> Iterator[Task | Source]:
        """Yield sources, then tasks."""
        yield from self.sources.values()
        yield from self.tasks.values()

    def reads(self, table: TableName) -> tuple[TableName, ...]:
        """Return what a table is made from."""
        return self.tasks[table].reads if table in self.tasks else ()


def quarantine_of(table: TableName) -> TableName:
    """Return where rows of a table that are set aside go.

    >>> str(quarantine_of(TableName("dws", "seller_day")))
    'quarantine.dws_seller_day'
    """
    return TableName(QUARANTINE, f"{table.layer}_{table.name}")
