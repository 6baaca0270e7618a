"""`rn.kafka`: what it makes, and each mistake in what it is given."""

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

import runnel as rn
from runnel.declare.model.endpoints import Kafka
from runnel.errors import Mistake

AVRO = {"type": "record", "name": "Click", "fields": [{"name": "id", "type": "long"}]}


def declared(topic: Any = "clicks", **options: Any) -> Kafka:
    found = rn.kafka(topic, **{"servers": "a:9092", **options})
    assert isinstance(found, Kafka)
    return found


def test_one_topic() -> None:
    found = declared(schema="id long")
    assert (found.topics, found.servers, found.format, found.start) == (("clicks",), "a:9092", "json", "earliest")
    assert [column.name for column in found.schema or ()] == ["id"]


def test_what_else_becomes_columns() -> None:
    found = declared(["a", "b"], servers=["a:1", "[::1]:2"], schema="id long", include=["offset", "key"])
    assert (found.topics, found.servers, found.include) == (("a", "b"), "a:1,[::1]:2", ("key", "offset"))
    assert [column.name for column in found.schema or ()] == ["id", "_key", "_offset"]


def test_raw_has_columns_of_its_own() -> None:
    names = "key value topic partition offset timestamp headers"
    assert [column.name for column in declared(format="raw").schema or ()] == names.split()


STARTS = {
    "latest": "latest",
    "2026-01-02": "2026-01-02T00:00:00+00:00",
    "2026-01-02T12:00+02:00": "2026-01-02T10:00:00+00:00",
    date(2026, 1, 2): "2026-01-02T00:00:00+00:00",
    datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))): "2026-01-02T02:00:00+00:00",
}


@pytest.mark.parametrize(("start", "kept"), STARTS.items())
def test_a_start(start: Any, kept: str) -> None:
    assert declared(start=start).start == kept


def test_a_secret_is_kept_by_name() -> None:
    options = {"sasl.password": rn.secret("KAFKA"), "socket.nagle.disable": True, "socket.timeout.ms": 5000}
    kept = declared(avro=AVRO, options=options)
    assert kept.format == "avro"
    assert dict(kept.options) == {
        "sasl.password": rn.secret("KAFKA"),
        "socket.nagle.disable": "true",
        "socket.timeout.ms": "5000",
    }
    assert "secret(KAFKA)" in repr(kept)


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no topic": ({"topic": None}, "no topic is named", 'pattern="clicks_.*"'),
    "no topics": ({"topic": []}, "the list of topics is empty", "name at least one"),
    "topic and pattern": ({"pattern": "a.*"}, "both a topic and a `pattern`", "rn.kafka("),
    "a pattern as topic": ({"topic": "clicks_.*"}, "is not a topic's name", "pattern='clicks_.*'"),
    "a topic twice": ({"topic": ["a", "a"]}, "twice", "once"),
    "no pattern": ({"topic": None, "pattern": "a("}, "is not a pattern", "clicks_"),
    "no servers": ({"servers": None}, "it has no `servers`", "127.0.0.1:9092"),
    "a server without port": ({"servers": "kafka"}, "'kafka' is not host:port", "a:9092,b:9092"),
    "a format": ({"format": "jsn"}, "close: `json`", "json, avro, raw"),
    "a schema": ({"schema": "id lng"}, "where a type was expected", "order_id long"),
    "a start": ({"start": "erliest"}, "close: `earliest`", "2026-01-31T12:00"),
    "a start that is no time": ({"start": 5}, "`start` can't be '5'", "latest"),
    "include": ({"include": ["ofset"]}, "close: `offset`", "key, headers"),
    "include of raw": ({"format": "raw", "include": "key"}, "anyway", "leave it out"),
    "schema of raw": ({"format": "raw", "schema": "id long"}, "no schema but its own: key, value", "leave"),
    "included twice": ({"schema": "_key string", "include": "key"}, "`_key` comes from `include`", "leave"),
    "avro without a schema": ({"format": "avro"}, "does not name the schema", "click.avsc"),
    "avro for JSON": ({"format": "json", "avro": AVRO}, "the format is json", 'format="avro"'),
    "avro that is none": ({"avro": 5}, "is not an Avro schema", "click.avsc"),
    "avro that is no JSON": ({"avro": "{type"}, "`avro` is not JSON", "click.avsc"),
    "avro that is no record": ({"avro": '{"type": "long"}'}, "must be a record", "click.avsc"),
    "wire of JSON": ({"wire": "plain"}, "`wire` applies only to Avro", "leave it out"),
    "expired": ({"expired": "skp"}, "close: `skip`", "stop, skip"),
    "an option": ({"shema": "id long"}, "close: `schema`", "known: servers"),
    "an option of ours": ({"options": {"auto.offset.reset": "latest"}}, "can't have `auto.offset.reset`", "start="),
    "a plain password": ({"options": {"sasl.password": "x4711"}}, "it is a secret", "rn.secret"),
    "an option's value": ({"options": {"a": None}}, "`options` has", "options="),
}


@pytest.mark.parametrize(("options", "what", "fix"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(options: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(Mistake) as raised:
        declared(**options)
    error = raised.value
    assert what in error.what and fix in str(error.fix) and "x4711" not in str(error)


def test_json_needs_a_schema() -> None:
    with pytest.raises(Mistake, match="reads JSON, which does not say the types"):
        rn.source("ods.clicks", rn.kafka("clicks", servers="a:1"))
