"""`rn.kafka`: declare Kafka topics as the origin of a source, or one topic as the target of a sink. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal, cast

from runnel.declare.model.column_types import Column, parse_columns
from runnel.declare.model.endpoints import InvalidEndpoint, Kafka
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

FORMATS = ("json", "avro", "raw")
INCLUDE_NAMES = ("key", "headers", "topic", "partition", "offset", "timestamp")
_INCLUDE_SCHEMA = (
    "_key string, _headers string, _topic string, _kafka_partition int, _offset long, _timestamp timestamp"
)
INCLUDE_COLUMNS = dict(
    zip(INCLUDE_NAMES, parse_columns(_INCLUDE_SCHEMA), strict=True)
)  # `_partition` is a metadata column of Iceberg
RAW_COLUMNS = parse_columns(
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, headers string"
)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z", re.ASCII)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}\Z", re.ASCII)
_SECRET_OPTION = re.compile(r"password|secret|\.key\.pem$|credentials|bearer\.config")
_RESERVED_OPTIONS = {
    "bootstrap.servers": "name them with servers=",
    "auto.offset.reset": 'say where to start with start="earliest", "latest" or a time',
    "enable.auto.commit": "the position is kept with the table",
    "enable.auto.offset.store": "the position is kept with the table",
    "enable.partition.eof": "it is needed to know where a topic ends",
    "isolation.level": "only messages of finished transactions are read",
}


def kafka(
    topic: str | Sequence[str] | None = None,
    *,
    servers: str | Sequence[str] | None = None,
    pattern: str | None = None,
    schema: str | None = None,
    format: Literal["json", "avro", "raw"] | None = None,
    avro: str | Mapping[str, Any] | None = None,
    wire: Literal["plain", "confluent"] | None = None,
    start: str | date | None = None,
    include: str | Sequence[str] | None = None,
    expired: Literal["stop", "skip"] | None = None,
    key: str | Sequence[str] | None = None,
    options: Mapping[str, str | int | bool | Secret] | None = None,
    **unknown: object,
) -> Kafka | InvalidEndpoint:
    """Declare Kafka topics, by name or by a `pattern` that they match: `rn.kafka("clicks", servers="kafka:9092")`.

    - `format`: of messages, `"json"`, `"avro"` or `"raw"`. JSON needs a `schema`; Avro needs `avro`, the Avro schema as
      JSON or the path of a file with it; raw gives key, value, topic, partition, offset, timestamp and headers.
    - `include=["key", "offset"]`: message metadata to add as columns, named `_key`, `_offset` and so on.
    - `start`: where the first run starts: `"earliest"`, `"latest"` or a time. Later runs continue where the last ended.
    - `expired`: what to do if messages expired before they were read: `"stop"`, or `"skip"` them.
    - `key` of a sink: the columns that make up a message's key.
    - `options`: Kafka client options, such as `{"security.protocol": "SASL_SSL", "sasl.password": rn.secret("KAFKA")}`.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"topic": topic, "servers": servers, "pattern": pattern, "schema": schema}
    values |= {"format": format, "avro": avro, "wire": wire, "start": start, "include": include, "expired": expired}
    values |= {"key": key, "options": options}
    mistakes: list[Mistake] = []
    reader = OptionReader(
        f"rn.kafka({quote_value(topic or pattern)})", values, lambda _, mistake: mistakes.append(mistake)
    )
    reader.reject_unknown(list(unknown), list(values)[1:])
    kind = cast(Any, reader.choice("format", FORMATS, "avro" if avro is not None else "json"))
    included = _read_include(reader, kind)
    origin = Kafka(
        servers=_read_servers(reader, servers),
        topics=_read_topics(reader, topic, pattern),
        pattern=_read_pattern(reader),
        schema=_read_schema(reader, kind, included),
        format=kind,
        avro=_read_avro(reader, avro, kind),
        wire=cast(Any, reader.choice("wire", ("plain", "confluent"))),
        start=_read_start(reader, start),
        include=included,
        expired=cast(Any, reader.choice("expired", ("stop", "skip"), "stop")),
        key=reader.texts("key", "a column"),
        options=_read_client_options(reader),
    )
    if wire is not None and kind != "avro":
        reader.reject("wire", f"`wire` applies only to Avro, but this is {kind}", "leave it out")
    for mistake in mistakes:
        registry.report_mistake(mistake, place)
    return InvalidEndpoint() if mistakes else origin


def _read_topics(reader: OptionReader, topic: object, pattern: object) -> tuple[str, ...]:
    if (topic is None) == (pattern is None):
        what = "both a topic and a `pattern` are named" if topic is not None else "no topic is named"
        reader.reject("topic", what, 'write rn.kafka("clicks", ...), rn.kafka(["a", "b"], ...) or pattern="clicks_.*"')
        return ()
    topics = reader.texts("topic", "a topic")
    if topic is not None and not topics and isinstance(topic, list | tuple) and not topic:
        reader.reject("topic", "the list of topics is empty", "name at least one")
    for name in topics:
        if not _TOPIC.match(name):
            fix = (
                f"for all topics that match, write pattern={quote_value(name)}"
                if re.search(r"[*+?|\[(]", name)
                else None
            )
            reader.reject(
                "topic", f"{quote_value(name)} is not a topic's name", fix or "use letters, digits, `.`, `_` and `-`"
            )
    return topics


def _read_pattern(reader: OptionReader) -> str | None:
    text = reader.text("pattern")
    try:
        re.compile(text or "")
    except re.error as error:
        reader.reject("pattern", f"{quote_value(text)} is not a pattern: {error}", 'write one such as "clicks_.*"')
    return text


def _read_servers(reader: OptionReader, servers: object) -> str:
    fix = 'write servers="127.0.0.1:9092", or several: servers="a:9092,b:9092"'
    if servers is None:
        reader.reject("servers", "it has no `servers`", fix)
        return ""
    addresses = [address.strip() for text in reader.texts("servers", "host:port") for address in text.split(",")]
    for address in addresses:
        if not _SERVER.match(address):
            reader.reject("servers", f"{quote_value(address)} is not host:port", fix)
    return ",".join(addresses)


def _read_include(reader: OptionReader, kind: str) -> tuple[str, ...]:
    names = reader.texts("include", "a word")
    for name in names:
        if name not in INCLUDE_NAMES:
            what = f"`include` can't have {quote_value(name)}" + did_you_mean(name, INCLUDE_NAMES)
            reader.reject("include", what, f"use some of {', '.join(INCLUDE_NAMES)}")
    if names and kind == "raw":
        reader.reject("include", "a raw source has all of `include` anyway", "leave it out")
    return tuple(name for name in INCLUDE_NAMES if name in names)


def _read_schema(reader: OptionReader, kind: str, include: tuple[str, ...]) -> tuple[Column, ...] | None:
    declared_columns = reader.schema()
    if kind == "raw":
        if declared_columns is not None:
            names = ", ".join(column.name for column in RAW_COLUMNS)
            reader.reject("schema", f"a raw source has no schema but its own: {names}", "leave it out")
        return RAW_COLUMNS
    if declared_columns is None:
        return None
    included_columns = tuple(column for name, column in INCLUDE_COLUMNS.items() if name in include)
    for column in included_columns:
        if column.name in [declared.name.lower() for declared in declared_columns]:
            reader.reject(
                "schema", f"`{column.name}` comes from `include`, but it is also in the schema", "leave it out there"
            )
    return (*declared_columns, *included_columns)


def _read_avro(reader: OptionReader, avro: object, kind: str) -> str | None:
    fix = 'write avro="schemas/click.avsc", or the schema itself: {"type": "record", "name": "Click", "fields": [...]}'
    if avro is None:
        if kind == "avro":
            reader.reject("avro", "it reads Avro, but `avro` does not name the schema that it was written with", fix)
        return None
    if kind != "avro":
        reader.reject("avro", f"`avro` is given, but the format is {kind}", 'leave it out, or write format="avro"')
    if not isinstance(avro, Mapping | str) or not avro:
        reader.reject("avro", f"{quote_value(avro)} is not an Avro schema", fix)
        return None
    text = json.dumps(avro) if isinstance(avro, Mapping) else avro.strip()
    if text[:1] not in ("{", "["):
        return text
    try:
        parsed = json.loads(text)
    except ValueError as error:
        reader.reject("avro", f"`avro` is not JSON: {error}", fix)
        return None
    if not isinstance(parsed, dict) or parsed.get("type") != "record" or not parsed.get("fields"):
        reader.reject("avro", "`avro` must be a record with fields: they become columns", fix)
    return text


def _read_start(reader: OptionReader, start: object) -> str:
    if start is None:
        return "earliest"
    if isinstance(start, date) and not isinstance(start, datetime):
        start = datetime(start.year, start.month, start.day, tzinfo=UTC)
    fix = 'write start="earliest", "latest", or a time such as "2026-01-31T12:00"'
    if isinstance(start, str) and start not in ("earliest", "latest"):
        hint = did_you_mean(start, ("earliest", "latest"))
        try:
            start = datetime.fromisoformat(start.strip())
        except ValueError:
            reader.reject("start", f"`start` can't be {quote_value(start)}" + hint, fix)
            return "earliest"
    if isinstance(start, datetime):
        return (start if start.tzinfo else start.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if not isinstance(start, str):
        reader.reject("start", f"`start` can't be {quote_value(start)}", fix)
        return "earliest"
    return start


def _read_client_options(reader: OptionReader) -> tuple[tuple[str, str | Secret], ...]:
    pairs: list[tuple[str, str | Secret]] = []
    for name, value in reader.pairs("options", (str, int, bool, Secret), '"text"'):
        if name in _RESERVED_OPTIONS:
            reader.reject("options", f"`options` can't have `{name}`", _RESERVED_OPTIONS[name])
        elif _SECRET_OPTION.search(name) and not isinstance(value, Secret):
            fix = f'write options={{"{name}": rn.secret("KAFKA_PASSWORD")}}, and set that variable'
            reader.reject("options", f"`{name}` is in the flow file, but it is a secret", fix)
        else:
            text = str(value).lower() if isinstance(value, bool) else value
            pairs.append((name, text if isinstance(text, Secret) else str(text)))
    return tuple(pairs)
