"""Define what a project declares, as values: a Flow of sources, tasks, checks, sinks, schedules and alerts.

Pure: the functions that users call (`task`, `source`, ...) create these values, the loader collects and links them,
and all other packages read them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runnel.declare.model.column_types import Column
from runnel.declare.model.endpoints import Changes, Function, Kafka, Manual, Origin, Target, Webhook
from runnel.declare.model.secret import Secret
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName

OnFail = Literal["stop", "warn", "drop", "quarantine"]
QUARANTINE_LAYER = "quarantine"
LOG_SUFFIX = "__changes"
CONTINUOUS = "continuous"  # poll a source without pause
ALARM_KINDS = ("failed", "late", "schedule", "stream", "sink", "worker", "disk")  # what alerts can notify about


@dataclass(frozen=True)
class Check:
    """A claim about a table. A row check has a `condition`; without one it is about the whole table.

    A row fails if its condition is false; null passes, as in SQL's own CHECK. `arguments` are those of the kind,
    such as min and max.
    """

    kind: str  # condition, not_null, unique, accepted, between, matches, references, row_count, fresh
    text: str  # as the user wrote it, such as not_null(seller_id): what messages and the quarantine table show
    columns: tuple[str, ...] = ()
    condition: str | None = None  # Spark SQL
    arguments: tuple[tuple[str, Any], ...] = ()
    on_fail: OnFail = "stop"
    place: SourceLocation | None = field(default=None, compare=False)

    @property
    def is_row_check(self) -> bool:
        """Return whether the check applies to each row separately."""
        return self.condition is not None


ALL_SLICES = "*"  # in `by_input`: the input has no slices, each slice of the task reads all of it


@dataclass(frozen=True)
class TaskOptions:
    """The options of a task. Pairs instead of mappings, so that it is hashable."""

    by: tuple[str, ...] = ()
    by_input: tuple[tuple[str, str], ...] = ()  # parameter, expression
    reference: tuple[str, ...] = ()
    lookback: tuple[tuple[str, int], ...] = ()
    trust_by: bool = False  # the user promises that each slice depends on its own rows only
    rowwise: bool = False
    key: tuple[str, ...] = ()
    volatile: bool = False
    stream: tuple[str, ...] = ()  # parameters whose tables are read as streams
    trigger: str | None = None
    watermark: tuple[tuple[str, str, str], ...] = ()  # parameter, or "" for all; column; how late a row may be
    output: str | None = None
    schema: tuple[Column, ...] | None = None
    partition: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = None
    retries: int = 2
    retry_on: tuple[str, ...] = ()  # names of exceptions that are retried like transient failures
    timeout_seconds: float | None = None
    deadline: str | None = None


@dataclass(frozen=True)
class Task:
    """One small computation that makes one table. Either `function` or `sql` is set.

    `inputs` are (parameter, table), `params` (keyword parameter, effective value).
    """

    table: TableName
    name: str
    place: SourceLocation
    inputs: tuple[tuple[str, TableName], ...] = ()
    params: tuple[tuple[str, Any], ...] = ()
    function: Callable[..., Any] | None = field(default=None, compare=False)
    sql: str | None = None
    takes_spark: bool = False  # a parameter called `spark` gets the session
    takes_scheduled_at: bool = False  # a keyword parameter of that name gets the time of the run's schedule
    options: TaskOptions = field(default_factory=TaskOptions)
    checks: tuple[Check, ...] = ()
    description: str = ""
    option_places: tuple[tuple[str, SourceLocation], ...] = field(default=(), compare=False)  # of SQL tasks

    def place_of(self, option: str) -> SourceLocation:
        """Return where the user wrote an option, for errors about it: its line in the header of SQL, or the task."""
        return dict(self.option_places).get(option, self.place)

    @property
    def input_tables(self) -> tuple[TableName, ...]:
        """Return the tables that the task reads, each once."""
        return tuple(dict.fromkeys(table for _, table in self.inputs))

    @property
    def referenced_tables(self) -> tuple[TableName, ...]:
        """Return the tables that the task's checks refer to, each once; they must exist when the checks run."""
        table_names = (dict(check.arguments).get("table") for check in self.checks if check.kind == "references")
        return tuple(dict.fromkeys(TableName.parse_unchecked(table) for table in table_names if table))

    @property
    def quarantine_table(self) -> TableName | None:
        """Return the table of quarantined rows, or None if no check quarantines rows."""
        return quarantine_table_of(self.table) if any(check.on_fail == "quarantine" for check in self.checks) else None


@dataclass(frozen=True)
class Source:
    """A table whose rows come from outside the lake."""

    table: TableName
    origin: Origin | Manual
    place: SourceLocation
    on_bad: Literal["stop", "drop", "quarantine"] = "stop"
    on_new_column: Literal["add", "ignore", "stop"] = "add"
    poll: str | None = None
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = None
    description: str = ""
    never_null: tuple[str, ...] = ()  # rows with null in these columns are bad, even if the schema allows null


@dataclass(frozen=True)
class Sink:
    """A target that a table is delivered to. Its progress is stored under its `name`."""

    table: TableName
    target: Target
    place: SourceLocation
    name: str
    branch: str = "main"
    retries: int = 2  # within a run; the next run continues

    @property
    def needs_each_commit(self) -> bool:
        """Return whether the sink needs the change of each commit separately; if not, it follows the newest version."""
        return isinstance(self.target, Kafka | Webhook | Function)


@dataclass(frozen=True)
class Schedule:
    """When to run which tables. `catch_up` says which missed times are run later."""

    name: str
    select: str
    place: SourceLocation
    cron: str | None = None
    tz: str | None = None
    every: str | None = None
    on_change: tuple[str, ...] = ()
    at_most_every: str | None = None
    min_rows: int | None = None
    min_bytes: int | None = None
    branch: str = "main"
    catch_up: Literal["last", "all", "none"] = "last"
    priority: int = 0
    retries: int = 2
    timeout: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        fields = {name: value for name, value in vars(self).items() if value not in (None, ())}
        return {**fields, "on_change": list(self.on_change), "place": str(self.place)}


@dataclass(frozen=True)
class Alert:
    """Who is notified when something goes wrong, and how: one of `webhook`, `email` and `command` is set."""

    name: str
    place: SourceLocation
    on: tuple[str, ...] = ALARM_KINDS
    select: str = ""
    webhook: str | Secret | None = None
    headers: tuple[tuple[str, str | Secret], ...] = ()
    email: tuple[str, ...] = ()
    smtp: str | None = None
    password: Secret | None = None
    sender: str | None = None
    command: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores, with the names of secrets instead of their values."""
        fields = {name: _hide_secret(value) for name, value in vars(self).items() if value not in (None, ())}
        fields |= {"headers": [[name, _hide_secret(value)] for name, value in self.headers], "email": list(self.email)}
        return {**fields, "on": list(self.on), "place": str(self.place)}


@dataclass(frozen=True)
class Flow:
    """Everything that a project declares, linked: every input is a table of some task or source."""

    root: Path
    tasks: Mapping[TableName, Task] = field(default_factory=dict)
    sources: Mapping[TableName, Source] = field(default_factory=dict)
    sinks: tuple[Sink, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    alerts: tuple[Alert, ...] = ()
    started_spark: SourceLocation | None = None  # the line of a flow file that needed a Spark session during import
    files: tuple[str, ...] = field(default=(), compare=False)  # the project's imported Python files

    def __iter__(self) -> Iterator[Task | Source]:
        """Yield sources, then tasks."""
        yield from self.sources.values()
        yield from self.tasks.values()

    def inputs_of(self, table: TableName) -> tuple[TableName, ...]:
        """Return the tables that a table is computed from."""
        if table in self.tasks:
            return self.tasks[table].input_tables
        source = self.sources.get(table)
        return (log_table_of(table),) if source is not None and isinstance(source.origin, Changes) else ()

    def is_derived(self, table: TableName) -> bool:
        """Return whether a table is computed from others: by a task, or by applying a change log."""
        return table in self.tasks or bool(self.inputs_of(table))


def _hide_secret(value: Any) -> Any:
    return {"secret": value.name} if isinstance(value, Secret) else value


def quarantine_table_of(table: TableName) -> TableName:
    """Return the table that gets the rows of a table that are set aside.

    >>> str(quarantine_table_of(TableName("dws", "seller_day")))
    'quarantine.dws_seller_day'
    """
    return TableName(QUARANTINE_LAYER, f"{table.layer}_{table.name}")


def log_table_of(table: TableName) -> TableName:
    """Return the table that stores the change log of a table.

    >>> str(log_table_of(TableName("ods", "customers")))
    'ods.customers__changes'
    """
    return TableName(table.layer, f"{table.name}{LOG_SUFFIX}")
