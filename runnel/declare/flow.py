"""What a project declares, as values: a Flow of sources, tasks, checks, sinks and schedules.

Pure: what users call makes these (`task`, `source`, ...), the loader collects and links them, and every later room
reads them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runnel.declare.place import Place
from runnel.declare.secret import Secret
from runnel.declare.types import Column
from runnel.names import TableName

OnFail = Literal["stop", "warn", "drop", "quarantine"]
QUARANTINE = "quarantine"
LOG_ENDING = "__changes"
VALIDITY = ("valid_from", "valid_to")  # what a table of versions adds to the columns of its log


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
    """A source of files, on disk or in an object store: what `rn.files` makes.

    `glob` is relative to the project's folder, unless it is an address such as `s3://bucket/*.csv`.
    """

    glob: str
    format: Literal["csv", "jsonl", "json", "parquet", "avro", "orc", "xml", "text", "binary"]
    schema: tuple[Column, ...] | None = None
    removed: Literal["keep", "delete"] = "keep"
    options: tuple[tuple[str, str], ...] = ()  # how the format is written; `null` may be there several times
    partition: tuple[str, ...] = ()  # of a sink: the columns whose values name its folders
    compress: Literal["gz", "zst"] | None = None  # of a sink that is a folder


@dataclass(frozen=True)
class Jdbc:
    """A table or a query of a database, as a source or as a sink: what `rn.jdbc` makes."""

    url: str | Secret
    table: str | None = None
    query: str | None = None
    user: str | Secret | None = None
    password: Secret | None = None
    watermark: str | None = None
    overlap: str | None = None  # a duration, or a number for a watermark that is one
    key: tuple[str, ...] = ()
    partitions: int = 1
    mode: Literal["append", "overwrite", "upsert"] | None = None  # of a sink
    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Kafka:
    """Topics of Kafka, as a source, or one as a sink: what `rn.kafka` makes. `topics` are names, or one `pattern`."""

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    schema: tuple[Column, ...] | None = None
    format: Literal["json", "avro", "raw"] = "json"
    avro: str | None = None  # the schema that messages were written with, as JSON, or a path of it
    wire: Literal["plain", "confluent"] | None = None  # how Avro stands in a message; None: whatever fits
    start: str = "earliest"  # or latest, or a time in ISO form
    include: tuple[str, ...] = ()  # what else becomes columns: key, headers, topic, partition, offset, timestamp
    expired: Literal["stop", "skip"] = "stop"  # what to do when messages are gone before they were read
    key: tuple[str, ...] = ()  # of a sink: the columns whose values make up a message's key
    options: tuple[tuple[str, str | Secret], ...] = ()  # of the client, such as security.protocol


@dataclass(frozen=True)
class Http:
    """A REST API that is polled: what `rn.http` makes. Where something stands in an answer is a path: `data.items`."""

    url: str | Secret
    schema: tuple[Column, ...] | None = None
    records: str | None = None  # where the list of records stands; None: the answer is the list
    paging: Literal["none", "page", "offset", "cursor", "link"] = "none"
    param: str | None = None  # the parameter that takes the page, the offset or the cursor
    first: int = 1  # the number of the first page
    size: tuple[str, int] | None = None  # the parameter for the size of a page, and the size
    cursor: str | None = None  # where the next cursor stands
    next: str | None = None  # where the URL of the next page stands; None: in the header Link
    more: str | None = None  # where it stands whether there is more
    since: tuple[str, str] | None = None  # a parameter, and the field of records whose greatest value it takes
    key: tuple[str, ...] = ()  # by which records take the place of earlier ones
    append: bool = False
    params: tuple[tuple[str, str | Secret], ...] = ()
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None  # sent as Authorization: Bearer
    user: str | Secret | None = None
    password: Secret | None = None
    method: Literal["GET", "POST"] = "GET"
    json: tuple[tuple[str, str | Secret], ...] = ()  # the body of a POST: names, and values as JSON text
    rate: float | None = None  # requests per second, at most
    timeout_seconds: float = 30.0
    retries: int = 4
    most_pages: int = 10_000


@dataclass(frozen=True)
class Function:
    """A function of its last state that returns rows and the new state: what `@rn.source` decorates."""

    function: Callable[..., Any] = field(compare=False)
    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Changes:
    """A log of changes that is applied by key: what `rn.changes` makes. The log is a table of its own: `log_of`."""

    origin: Files | Jdbc | Kafka | Http | Function
    key: tuple[str, ...]
    sequence_by: tuple[str, ...]
    delete_when: str | None = None
    scd: Literal[1, 2] = 1

    @property
    def schema(self) -> tuple[Column, ...] | None:
        """Return the columns of the table: those of the log, and with `scd=2` from when to when a row held."""
        columns = self.origin.schema
        first = [column for column in columns or () if column.name == self.sequence_by[0]]
        if columns is None or self.scd == 1 or not first:
            return columns
        return (*columns, *(Column(name, first[0].type) for name in VALIDITY))


Origin = Files | Jdbc | Kafka | Http | Function | Changes


@dataclass(frozen=True)
class Manual:
    """A source that people fill with `load` or `put`: what `rn.manual` makes."""

    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Source:
    """A table that comes from outside."""

    table: TableName
    origin: Origin | Manual
    place: Place
    on_bad: Literal["stop", "drop", "quarantine"] = "stop"
    on_new_column: Literal["add", "ignore", "stop"] = "add"
    poll: str | None = None
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owner: str | None = None
    description: str = ""
    never_null: tuple[str, ...] = ()  # columns whose rows are bad where they are null, whatever the schema says


@dataclass(frozen=True)
class Webhook:
    """An address that is told of every commit that changes a table: what `rn.webhook` makes."""

    url: str | Secret
    rows: bool = True  # whether the rows themselves are sent
    batch: int = 1000  # rows in one request, at most
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None  # sent as Authorization: Bearer
    secret: Secret | None = None  # what a request is signed with
    timeout_seconds: float = 10.0


Target = Files | Jdbc | Kafka | Webhook | Function


@dataclass(frozen=True)
class Sink:
    """Where a table is handed on to. By its `name` it is known how far it has come."""

    table: TableName
    target: Target
    place: Place
    name: str
    branch: str = "main"
    retries: int = 2  # within a run; the next one goes on

    @property
    def takes_commits(self) -> bool:
        """Tell whether it wants the change of each commit by itself; else it follows the newest version."""
        return isinstance(self.target, Kafka | Webhook | Function)


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
        if table in self.tasks:
            return self.tasks[table].reads
        source = self.sources.get(table)
        return (log_of(table),) if source is not None and isinstance(source.origin, Changes) else ()

    def makes(self, table: TableName) -> bool:
        """Tell whether a table is made from others: by a task, or by applying a log of changes."""
        return table in self.tasks or bool(self.reads(table))


def quarantine_of(table: TableName) -> TableName:
    """Return where rows of a table that are set aside go.

    >>> str(quarantine_of(TableName("dws", "seller_day")))
    'quarantine.dws_seller_day'
    """
    return TableName(QUARANTINE, f"{table.layer}_{table.name}")


def log_of(table: TableName) -> TableName:
    """Return where the log of a table is kept whose source is a log of changes.

    >>> str(log_of(TableName("ods", "customers")))
    'ods.customers__changes'
    """
    return TableName(table.layer, f"{table.name}{LOG_ENDING}")
