"""Define origins of sources and targets of sinks as values: files, databases, Kafka, HTTP, functions, people. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from runnel.declare.model.column_types import Column
from runnel.declare.model.secret import Secret

VALIDITY_COLUMNS = ("valid_from", "valid_to")  # columns that `scd=2` adds to those of the change log


@dataclass(frozen=True)
class Files:
    """Files on disk or in an object store, returned by `rn.files`.

    `glob` is relative to the project's folder, unless it is an address such as `s3://bucket/*.csv`.
    """

    glob: str
    format: Literal["csv", "jsonl", "json", "parquet", "avro", "orc", "xml", "text", "binary"]
    schema: tuple[Column, ...] | None = None
    removed: Literal["keep", "delete"] = "keep"
    options: tuple[tuple[str, str], ...] = ()  # how the format is written; `null` may occur several times
    partition: tuple[str, ...] = ()  # of a sink: the columns whose values name its folders
    compress: Literal["gz", "zst"] | None = None  # of a sink that is a folder
    infers_schema: bool = False  # whether the first run settles the columns, which the table then records
    may_be_empty: bool = False  # whether a table without rows is created if there are no files yet
    follow_links: bool = False  # whether links may lead out of the folder before the glob's first wildcard


@dataclass(frozen=True)
class Jdbc:
    """A table or a query of a database, as a source or as a sink, returned by `rn.jdbc`."""

    url: str | Secret
    table: str | None = None
    query: str | None = None
    user: str | Secret | None = None
    password: Secret | None = None
    watermark: str | None = None
    overlap: str | None = None  # a duration, or a number if the watermark is numeric
    key: tuple[str, ...] = ()
    partitions: int = 1
    removed: Literal["keep", "delete"] = "delete"  # of rows with a key
    mode: Literal["append", "overwrite", "upsert"] | None = None  # of a sink
    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Kafka:
    """Kafka topics of a source or one topic of a sink, returned by `rn.kafka`. Either `topics` or `pattern` is set."""

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    schema: tuple[Column, ...] | None = None
    format: Literal["json", "avro", "raw"] = "json"
    avro: str | None = None  # the schema that messages were written with, as JSON or as a file's path
    wire: Literal["plain", "confluent"] | None = None  # how a message encodes Avro; None: detect it
    start: str = "earliest"  # or latest, or a time in ISO form
    include: tuple[str, ...] = ()  # metadata to add as columns: key, headers, topic, partition, offset, timestamp
    expired: Literal["stop", "skip"] = "stop"  # what to do if messages expired before they were read
    key: tuple[str, ...] = ()  # of a sink: the columns whose values make up a message's key
    options: tuple[tuple[str, str | Secret], ...] = ()  # of the client, such as security.protocol


@dataclass(frozen=True)
class Http:
    """A REST API to poll, returned by `rn.http`. Places in a response are paths such as `data.items`."""

    url: str | Secret
    schema: tuple[Column, ...] | None = None
    records: str | None = None  # path of the list of records; None: the response is the list
    paging: Literal["none", "page", "offset", "cursor", "link"] = "none"
    param: str | None = None  # the query parameter for the page, the offset or the cursor
    first: int = 1  # the number of the first page
    size: tuple[str, int] | None = None  # the parameter for the size of a page, and the size
    cursor: str | None = None  # path of the next cursor
    next: str | None = None  # path of the URL of the next page; None: in the header Link
    more: str | None = None  # path of the flag that says whether there are more pages
    since: tuple[str, str] | None = None  # a parameter, and the record field whose greatest value it gets
    key: tuple[str, ...] = ()  # records replace earlier ones with the same key
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
    """Events that other programs push to the service, returned by `rn.http` without an address."""

    schema: tuple[Column, ...] | None = None
    key: tuple[str, ...] = ()  # detects events that are sent twice
    keep_seconds: float = 7 * 86_400.0  # how long events and keys are kept after main has ingested them


@dataclass(frozen=True)
class Function:
    """A function decorated with `@rn.source`: it gets its last state and returns rows and the new state."""

    function: Callable[..., Any] = field(compare=False)
    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Changes:
    """A change log that is applied by key, returned by `rn.changes`. The log is a separate table: `log_table_of`."""

    origin: Files | Jdbc | Kafka | Http | Push | Function
    key: tuple[str, ...]
    sequence_by: tuple[str, ...]
    delete_when: str | None = None
    scd: Literal[1, 2] = 1

    @property
    def schema(self) -> tuple[Column, ...] | None:
        """Return the columns of the table: those of the log, and with `scd=2` those of a row's validity."""
        columns = self.origin.schema
        first = [column for column in columns or () if column.name == self.sequence_by[0]]
        if columns is None or self.scd == 1 or not first:
            return columns
        return (*columns, *(Column(name, first[0].type) for name in VALIDITY_COLUMNS))


Origin = Files | Jdbc | Kafka | Http | Push | Function | Changes


@dataclass(frozen=True)
class Manual:
    """A source that people fill with `load` or `put`, returned by `rn.manual`."""

    schema: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Webhook:
    """An address that gets a request for every commit that changes a table, returned by `rn.webhook`."""

    url: str | Secret
    rows: bool = True  # whether the rows themselves are sent
    batch: int = 1000  # rows in one request, at most
    headers: tuple[tuple[str, str | Secret], ...] = ()
    token: Secret | None = None  # sent as Authorization: Bearer
    secret: Secret | None = None  # the key that requests are signed with
    timeout_seconds: float = 10.0


Target = Files | Jdbc | Kafka | Webhook | Function


class InvalidEndpoint:
    """A placeholder for an origin or a target that was declared wrongly; its mistake was already reported."""
