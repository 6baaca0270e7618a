"""What messages of Kafka become: JSON, Avro and bytes, their keys and headers, and those that are no rows."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from runnel.connect.load import quarantine_files
from runnel.connect.load.quarantine_files import QuarantineFileWriter
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.errors import Mistake, RunnelError
from tests.connect.kafka.kafka_project import IN_BOTH_PLACES, A, B, Clicks, open_clicks
from tests.servers.kafka import Server

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
MILLISECONDS = round(AT.timestamp() * 1000)
CLICK: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "page", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "seen",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Seen", "fields": [{"name": "x", "type": "int"}]},
            },
        },
        {"name": "last", "type": ["null", "Seen"]},
        {"name": "either", "type": ["null", "int", "string"]},
    ],
}
ROW: dict[str, Any] = {
    "id": 7,
    "page": None,
    "day": date(2026, 1, 2),
    "at": AT,
    "paid": Decimal("1.50"),
    "who": "12345678-1234-5678-1234-567812345678",
    "tags": {"a": 1},
    "seen": [{"x": 1}, {"x": 2}],
    "last": {"x": 3},
    "either": "b",
}
COLUMNS = ROW | {"tags": [("a", 1)], "either": '"b"'}


@pytest.fixture
def clicks(request: pytest.FixtureRequest, kafka: Server, tmp_path: Path) -> Clicks:
    clicks = open_clicks(request, kafka, tmp_path)
    clicks.make()
    return clicks


def avro(row: dict[str, Any], schema: dict[str, Any] = CLICK) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@IN_BOTH_PLACES
def test_keys_headers_and_places(clicks: Clicks) -> None:
    headers = [("trace", b"t1"), ("hop", b"a"), ("hop", b"\xff"), ("none", None)]
    clicks.put(A, key="k", headers=headers, timestamp=MILLISECONDS)
    clicks.put("{}", b' {"_offset": 99, "id": 2}\n', key=b"\xfe", timestamp=MILLISECONDS)
    feed = clicks.feed(include=["timestamp", "offset", "key", "headers", "topic", "partition"])
    first, second, third = feed.read()
    said = json.loads(first.pop("_headers"))
    assert said == {"trace": "t1", "hop": ["a", "\\xff"], "none": None}
    place = {"_topic": clicks.topic, "_kafka_partition": 0, "_timestamp": "2026-01-02T03:04:05.678Z"}
    assert first == {"id": 1, "page": "a", "_key": "k", "_offset": 0, **place}
    assert second == {"_key": "\\xfe", "_headers": None, "_offset": 1, **place}
    assert third["id"] == 2


@IN_BOTH_PLACES
def test_what_is_included_becomes_columns(clicks: Clicks) -> None:
    clicks.declare('schema="id long", include=["key", "headers", "topic", "partition", "offset", "timestamp"]')
    clicks.put('{"id": 1, "_offset": 99}', key="k", headers=[("a", b"b")], timestamp=MILLISECONDS)
    clicks.put('{"id": 2}', timestamp=MILLISECONDS)
    clicks.run()
    assert clicks.rows() == [
        (1, "k", '{"a": "b"}', clicks.topic, 0, 0, AT),
        (2, None, None, clicks.topic, 0, 1, AT),
    ]


@IN_BOTH_PLACES
def test_raw_is_bytes(clicks: Clicks) -> None:
    clicks.put(b"\x00\xff", None, key=b"\x01", headers=[("a", b"b")], timestamp=MILLISECONDS)
    clicks.declare('format="raw"')
    clicks.run()
    place = (clicks.topic, 0)
    assert clicks.rows() == [
        (b"\x01", None, *place, 1, AT, '{"a": "b"}'),
        (b"\x01", b"\x00\xff", *place, 0, AT, '{"a": "b"}'),
    ]


@IN_BOTH_PLACES
def test_avro_in_a_table(clicks: Clicks) -> None:
    clicks.project.write("schemas/click.avsc", json.dumps(CLICK))
    clicks.declare('avro="schemas/click.avsc", include="key", start="latest"')
    clicks.run()
    clicks.put(avro(ROW), key="k")
    clicks.run()
    (row,) = clicks.rows()
    assert row[:6] == (7, None, date(2026, 1, 2), AT, Decimal("1.50"), ROW["who"])
    assert row[7:] == ([{"x": 1}, {"x": 2}], {"x": 3}, '"b"', "k")


SMALL = {"type": "record", "name": "S", "fields": [{"name": "id", "type": "long"}, {"name": "page", "type": "string"}]}
FRAMED = b"\x00\x00\x00\x00\x07" + avro(B, SMALL)
AMBIGUOUS = avro({"id": 0, "page": "John Abcdefghijklmnop"}, SMALL)
AVRO: dict[str, tuple[str | None, bytes | None, int | str]] = {
    "plain": (None, avro(A, SMALL), 1),
    "with a prefix": (None, FRAMED, 2),
    "with a prefix, said": ("confluent", FRAMED, 2),
    "either": (None, AMBIGUOUS, "with and without"),
    "either, said": ("plain", AMBIGUOUS, 0),
    "no prefix, but said": ("confluent", avro(A, SMALL), "no prefix"),
    "cut off": (None, avro(A, SMALL)[:-1], "it is not Avro of this schema"),
    "more bytes": (None, avro(A, SMALL) + b"!", "1 bytes are left over"),
    "tombstone": (None, None, "tombstone"),
}


@IN_BOTH_PLACES
@pytest.mark.parametrize(("wire", "value", "found"), AVRO.values(), ids=AVRO)
def test_avro_messages(clicks: Clicks, wire: str | None, value: bytes | None, found: int | str) -> None:
    clicks.put(value)
    feed = clicks.feed(format="avro", avro=SMALL, wire=wire)
    if isinstance(found, int):
        assert [row["id"] for row in feed.read()] == [found]
        return
    with pytest.raises(RunnelError) as raised:
        feed.read()
    assert raised.value.code == "SOURCE_BAD_ROWS" and found in raised.value.what


def test_avro_rows_have_python_values(clicks: Clicks) -> None:
    clicks.put(avro(ROW), avro(ROW | {"last": None, "either": 5}))
    first, second = clicks.feed(format="avro", avro=CLICK).read()
    assert first == COLUMNS
    assert second == COLUMNS | {"last": None, "either": "5"}


@IN_BOTH_PLACES
def test_an_avro_schema_that_is_none(clicks: Clicks) -> None:
    for avro_schema in ("no.avsc", '{"type": "record", "name": "a", "fields": [{"name": "b", "type": "nothing"}]}'):
        with pytest.raises(Mistake) as raised:
            clicks.feed(format="avro", avro=avro_schema).read()
        assert raised.value.code == "SOURCE_KAFKA_AVRO"


BAD: dict[str, tuple[bytes | None, str]] = {
    "tombstone": (None, "it has no value: it is a tombstone"),
    "nothing": (b"  ", "it is empty"),
    "a list": (b"[1]", "it is no object"),
    "text": (b"hello", "it is not JSON: expecting value at position 0"),
    "a line's end in a text": (b'{"id": 1, "page": "a\nb"}', "it is not JSON: invalid control character"),
    "not UTF-8": (b"\xff\xfe", "byte 0xff at position 0 is not UTF-8"),
}


@IN_BOTH_PLACES
@pytest.mark.parametrize(("value", "reason"), BAD.values(), ids=BAD)
def test_bad_messages_by_each_policy(clicks: Clicks, value: bytes | None, reason: str) -> None:
    clicks.put(A, value, B)
    with pytest.raises(RunnelError) as raised:
        clicks.feed().read()
    error = raised.value
    assert error.code == "SOURCE_BAD_ROWS" and "1 message of ods.clicks can't be read" in error.what
    assert f"{clicks.topic}[0], offset 1: {reason}" in error.what
    dropping = clicks.feed(on_bad="drop")
    assert (dropping.ids(), dropping.last.dropped) == ([1, 2], 1)
    clicks.declare(on=', on_bad="quarantine"')
    clicks.run()
    assert [row[0] for row in clicks.rows()] == [1, 2]
    ((raw, quarantine_reason, *_),) = clicks.project.rows("quarantine.ods_clicks")
    assert raw == (None if value is None else value.decode(errors="backslashreplace"))
    assert quarantine_reason.startswith(f"{clicks.topic}[0], offset 1: {reason}")


@IN_BOTH_PLACES
def test_bad_messages_are_written_a_batch_at_a_time(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_files, "_BATCH_ROWS", 3)
    row_counts: list[int] = []
    write = QuarantineFileWriter.write

    def count_rows(writer: QuarantineFileWriter, owner: str, rows: list[QuarantinedRow]) -> None:
        row_list = list(rows)
        row_counts.append(len(row_list))
        write(writer, owner, row_list)

    monkeypatch.setattr(QuarantineFileWriter, "write", count_rows)
    clicks.put(*(f"bad {number}" for number in range(10)), *(f'{{"id": "x{number}"}}' for number in range(10)), A)
    clicks.declare(on=', on_bad="quarantine"')
    clicks.run()
    texts = {row[0] for row in clicks.project.rows("quarantine.ods_clicks")}
    assert texts == {f"bad {number}" for number in range(10)} | {f'{{"id": "x{number}"}}' for number in range(10)}
    assert row_counts[:3] == [3, 3, 3]


def test_json_on_several_lines_is_one_row(clicks: Clicks) -> None:
    clicks.put(json.dumps(A, indent=2), '{"id": 5,\r\n"page": "\\n"}', "\n" + json.dumps(B))
    assert clicks.feed().read() == [A, {"id": 5, "page": "\n"}, B]
