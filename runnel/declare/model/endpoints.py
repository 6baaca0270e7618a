"""Where rows come from and where they go: files, databases, Kafka, HTTP, functions, people, as values. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from runnel.declare.model.column_types import Column
from runnel.declare.model.secret import Secret

VALIDITY_COLUMNS = ("valid_from", "valid_to")  # what a table of versions adds to the columns of its log


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
    removed: Literal["keep", "delete"] = "delete"  # of rows with a key
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
class Push:
    """Events that other programs push to the service: what `rn.http` makes without an address."""

    schema: tuple[Column, ...] | None = None
    key: tuple[str, ...] = ()  # by which an event that comes again is known
    keep_seconds: float = 7 * 86_400.0  # how long events and keys are kept after main has taken them in


@dataclass(frozen=True)
class Function:
    """A function of its last state that returns rows and the new state: what `@rn.source` decorates."""

    function: Callable[..., Any] = field(compare=False)
    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Changes:
    """A log of changes that is applied by key: what `rn.changes` makes. The log is a table of its own: `log_of`."""

    origin: Files | Jdbc | Kafka | Http | Push | Function
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
        return (*columns, *(Column(name, first[0].type) for name in VALIDITY_COLUMNS))


Origin = Files | Jdbc | Kafka | Http | Push | Function | Changes


@dataclass(frozen=True)
class Manual:
    """A source that people fill with `load` or `put`: what `rn.manual` makes."""

    schema: tuple[Column, ...] | None = None


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


class InvalidEndpoint:
    """Stands for an origin or a target that was declared wrongly; the mistake is told already."""
