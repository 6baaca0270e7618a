"""`rn.kafka`: topics of Kafka, as the origin of a source, or one of them as the target of a sink. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal, cast

from runnel.declare.model.column_types import Column, columns
from runnel.declare.model.endpoints import Kafka, Wrong
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.errors import Mistake, nearest
from runnel.names import shown

FORMATS = ("json", "avro", "raw")
INCLUDES = ("key", "headers", "topic", "partition", "offset", "timestamp")
_INCLUDED = "_key string, _headers string, _topic string, _kafka_partition int, _offset long, _timestamp timestamp"
INCLUDED = dict(zip(INCLUDES, columns(_INCLUDED), strict=True))  # `_partition` is a column of Iceberg's own
RAW = columns("key binary, value binary, topic string, partition int, offset long, timestamp timestamp, headers string")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z", re.ASCII)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}\Z", re.ASCII)
_HIDDEN = re.compile(r"password|secret|\.key\.pem$|credentials|bearer\.config")
_OWNED = {
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
) -> Kafka | Wrong:
    """Name one topic of Kafka, several, or those that fit a `pattern`: `rn.kafka("clicks", servers="kafka:9092")`.

    - `format`: of messages, `"json"`, `"avro"` or `"raw"`. JSON needs a `schema`; Avro needs `avro`, the Avro schema as
      JSON or the path of a file with it; raw gives key, value, topic, partition, offset, timestamp and headers.
    - `include=["key", "offset"]`: what else becomes columns, called `_key`, `_offset` and so on.
    - `start`: where the first run starts: `"earliest"`, `"latest"` or a time. Later runs go on where the last ended.
    - `expired`: when messages are gone before they were read: `"stop"`, or `"skip"` them.
    - `key` of a sink: the columns that make up a message's key.
    - `options`: of the client, such as `{"security.protocol": "SASL_SSL", "sasl.password": rn.secret("KAFKA")}`.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"topic": topic, "servers": servers, "pattern": pattern, "schema": schema}
    values |= {"format": format, "avro": avro, "wire": wire, "start": start, "include": include, "expired": expired}
    values |= {"key": key, "options": options}
    wrong: list[Mistake] = []
    given = Given(f"rn.kafka({shown(topic or pattern)})", values, lambda _, mistake: wrong.append(mistake))
    given.unknown(list(unknown), list(values)[1:])
    kind = cast(Any, given.choice("format", FORMATS, "avro" if avro is not None else "json"))
    extra = _include(given, kind)
    found = Kafka(
        servers=_servers(given, servers),
        topics=_topics(given, topic, pattern),
        pattern=_pattern(given),
        schema=_schema(given, kind, extra),
        format=kind,
        avro=_avro(given, avro, kind),
        wire=cast(Any, given.choice("wire", ("plain", "confluent"))),
        start=_start(given, start),
        include=extra,
        expired=cast(Any, given.choice("expired", ("stop", "skip"), "stop")),
        key=given.texts("key", "a column"),
        options=_options(given, options),
    )
    if wire is not None and kind != "avro":
        given.wrong("wire", f"`wire` is about Avro, but this is {kind}", "leave it out")
    for mistake in wrong:
        registry.note(mistake, place)
    return Wrong() if wrong else found


def _topics(given: Given, topic: object, pattern: object) -> tuple[str, ...]:
    if (topic is None) == (pattern is None):
        what = "both a topic and a `pattern` are named" if topic is not None else "no topic is named"
        given.wrong("topic", what, 'write rn.kafka("clicks", ...), rn.kafka(["a", "b"], ...) or pattern="clicks_.*"')
        return ()
    found = given.texts("topic", "a topic")
    if topic is not None and not found and isinstance(topic, list | tuple) and not topic:
        given.wrong("topic", "the list of topics is empty", "name at least one")
    for name in found:
        if not _TOPIC.match(name):
            fix = f"for all topics that fit, write pattern={shown(name)}" if re.search(r"[*+?|\[(]", name) else None
            given.wrong("topic", f"{shown(name)} is not a topic's name", fix or "use letters, digits, `.`, `_` and `-`")
    return found


def _pattern(given: Given) -> str | None:
    text = given.text("pattern")
    try:
        re.compile(text or "")
    except re.error as error:
        given.wrong("pattern", f"{shown(text)} is not a pattern: {error}", 'write one such as "clicks_.*"')
    return text


def _servers(given: Given, servers: object) -> str:
    fix = 'write servers="127.0.0.1:9092", or several: servers="a:9092,b:9092"'
    if servers is None:
        given.wrong("servers", "it has no `servers`", fix)
        return ""
    found = [one.strip() for text in given.texts("servers", "host:port") for one in text.split(",")]
    for one in found:
        if not _SERVER.match(one):
            given.wrong("servers", f"{shown(one)} is not host:port", fix)
    return ",".join(found)


def _include(given: Given, kind: str) -> tuple[str, ...]:
    found = given.texts("include", "a word")
    for name in found:
        if name not in INCLUDES:
            close = nearest(name, INCLUDES)
            what = f"`include` can't have {shown(name)}" + (f"; close: `{close}`" if close else "")
            given.wrong("include", what, f"use some of {', '.join(INCLUDES)}")
    if found and kind == "raw":
        given.wrong("include", "a raw source has all of `include` anyway", "leave it out")
    return tuple(name for name in INCLUDES if name in found)


def _schema(given: Given, kind: str, include: tuple[str, ...]) -> tuple[Column, ...] | None:
    found = given.schema()
    if kind == "raw":
        if found is not None:
            names = ", ".join(column.name for column in RAW)
            given.wrong("schema", f"a raw source has no schema but its own: {names}", "leave it out")
        return RAW
    if found is None:
        return None
    extra = tuple(column for name, column in INCLUDED.items() if name in include)
    for column in extra:
        if column.name in [one.name.lower() for one in found]:
            given.wrong("schema", f"`{column.name}` comes by `include`; it is also in the schema", "leave it out there")
    return (*found, *extra)


def _avro(given: Given, avro: object, kind: str) -> str | None:
    fix = 'write avro="schemas/click.avsc", or the schema itself: {"type": "record", "name": "Click", "fields": [...]}'
    if avro is None:
        if kind == "avro":
            given.wrong("avro", "it reads Avro, and `avro` does not say by which schema it was written", fix)
        return None
    if kind != "avro":
        given.wrong("avro", f"`avro` is given, but the format is {kind}", 'leave it out, or write format="avro"')
    if not isinstance(avro, Mapping | str) or not avro:
        given.wrong("avro", f"{shown(avro)} is not an Avro schema", fix)
        return None
    text = json.dumps(avro) if isinstance(avro, Mapping) else avro.strip()
    if text[:1] not in ("{", "["):
        return text
    try:
        parsed = json.loads(text)
    except ValueError as error:
        given.wrong("avro", f"`avro` is not JSON: {error}", fix)
        return None
    if not isinstance(parsed, dict) or parsed.get("type") != "record" or not parsed.get("fields"):
        given.wrong("avro", "`avro` must be a record with fields: they become columns", fix)
    return text


def _start(given: Given, start: object) -> str:
    if start is None:
        return "earliest"
    if isinstance(start, date) and not isinstance(start, datetime):
        start = datetime(start.year, start.month, start.day, tzinfo=UTC)
    fix = 'write start="earliest", "latest", or a time such as "2026-01-31T12:00"'
    if isinstance(start, str) and start not in ("earliest", "latest"):
        close = nearest(start, ("earliest", "latest"))
        try:
            start = datetime.fromisoformat(start.strip())
        except ValueError:
            given.wrong("start", f"`start` can't be {shown(start)}" + (f"; close: `{close}`" if close else ""), fix)
            return "earliest"
    if isinstance(start, datetime):
        return (start if start.tzinfo else start.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if not isinstance(start, str):
        given.wrong("start", f"`start` can't be {shown(start)}", fix)
        return "earliest"
    return start


def _options(given: Given, options: object) -> tuple[tuple[str, str | Secret], ...]:
    found: list[tuple[str, str | Secret]] = []
    for name, value in given.pairs("options", (str, int, bool, Secret), '"text"'):
        if name in _OWNED:
            given.wrong("options", f"`options` can't have `{name}`", _OWNED[name])
        elif _HIDDEN.search(name) and not isinstance(value, Secret):
            fix = f'write options={{"{name}": rn.secret("KAFKA_PASSWORD")}}, and set that variable'
            given.wrong("options", f"`{name}` stands in the flow file; it is a secret", fix)
        else:
            text = str(value).lower() if isinstance(value, bool) else value
            found.append((name, text if isinstance(text, Secret) else str(text)))
    return tuple(found)
