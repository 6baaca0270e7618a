"""Every format of files: read, nothing new, a new file, a changed one, and what can't be read, by each policy."""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.errors import RunnelError
from tests.connect.conftest import Loading, Writing
from tests.connect.ingest.file_source import Ingesting
from tests.lake.factories import read as rows_of

Rows = list[tuple[int, str]]
SCHEMA = "id long, name string"


def csv_of(rows: Rows) -> bytes:
    return "".join(["id,name\n", *(f"{number},{name}\n" for number, name in rows)]).encode()


def jsonl_of(rows: Rows) -> bytes:
    return "".join(json.dumps({"id": number, "name": name}) + "\n" for number, name in rows).encode()


def json_of(rows: Rows) -> bytes:
    return json.dumps([{"id": number, "name": name} for number, name in rows], indent=1).encode()


def xml_of(rows: Rows) -> bytes:
    inside = "".join(f'<order id="{number}">\n  <name>{name}</name></order>' for number, name in rows)
    return f'<?xml version="1.0"?><orders>{inside}</orders>'.encode()


def parquet_of(rows: Rows) -> bytes:
    return _written(lambda out: pq.write_table(_table(rows), out))


def orc_of(rows: Rows) -> bytes:
    return _written(lambda out: orc.write_table(_table(rows), out))


def avro_of(rows: Rows) -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "order", "fields": fields}
    return _written(lambda out: fastavro.writer(out, schema, [{"id": number, "name": name} for number, name in rows]))


def _written(write: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _table(rows: Rows) -> pa.Table:
    return pa.table({"id": [row[0] for row in rows], "name": [row[1] for row in rows]})


def zst(raw: bytes) -> bytes:
    return pa.compress(raw, codec="zstd", asbytes=True)


def zipped(raw: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside.csv", raw)
    return out.getvalue()


FORMATS = {
    "csv": (csv_of, SCHEMA),
    "jsonl": (jsonl_of, SCHEMA),
    "json": (json_of, SCHEMA),
    "xml": (xml_of, SCHEMA),
    "parquet": (parquet_of, None),
    "orc": (orc_of, None),
    "avro": (avro_of, None),
}
PACKED = {"gz": gzip.compress, "zst": zst, "bz2": bz2.compress, "xz": lzma.compress, "zip": zipped}
MANY = [(number, f"{number * 7919 % 9973:x}") for number in range(3000)]


def reading(ods: Ingesting, form: str, glob: str = "data/*", schema: str | None = SCHEMA, **options: str) -> None:
    found = Files(glob, form, parse_columns(schema) if schema else None, options=tuple(options.items()))  # type: ignore[arg-type]
    ods.source = replace(ods.source, origin=found)


def aside(ods: Ingesting) -> list[tuple[Any, ...]]:
    return [row[:3] for row in rows_of(ods.store, "quarantine.ods_orders")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_format(ods: Ingesting, form: str) -> None:
    make, schema = FORMATS[form]
    reading(ods, form, schema=schema)
    ods.write(f"a.{form}", make([(1, "a"), (2, "é")]))
    ods.run()
    assert ods.rows == [(1, "a"), (2, "é")]
    assert ods.run().is_empty
    ods.write(f"b.{form}", make([(3, "c")]))
    assert [arrival.path for arrival in ods.run().files_to_read] == [f"data/b.{form}"]
    ods.write(f"a.{form}", make([(4, "d")]))
    assert [arrival.path for arrival in ods.run().files_to_read] == [f"data/a.{form}"]
    assert ods.rows == [(3, "c"), (4, "d")]


CUT = {
    "json": ("SOURCE_JSON", "in line "),
    "xml": ("SOURCE_XML", " in line "),
    "parquet": ("SOURCE_NOT_PARQUET", "not a complete Parquet file"),
    "orc": ("SOURCE_NOT_ORC", "not a complete ORC file"),
    "avro": ("SOURCE_NOT_AVRO", "it ends too early"),
}


@pytest.mark.parametrize("form", CUT)
def test_a_file_that_is_cut_off(ods: Ingesting, form: str) -> None:
    make, _ = FORMATS[form]
    whole = make(MANY)
    unreadable(ods, form, f"b.{form}", whole[: len(whole) * 2 // 3], *CUT[form], make)


@pytest.mark.parametrize("ending", PACKED)
def test_a_packed_file(ods: Ingesting, ending: str) -> None:
    reading(ods, "csv")
    ods.write(f"a.csv.{ending}", PACKED[ending](csv_of([(1, "a")])))
    ods.run()
    assert ods.rows == [(1, "a")]
    whole = PACKED[ending](csv_of(MANY))
    code = "SOURCE_GZIP" if ending == "gz" else "SOURCE_PACKED"
    cut = whole[: len(whole) * 2 // 3]
    unreadable(ods, "csv", f"b.csv.{ending}", cut, code, "is not a complete", lambda rows: PACKED[ending](csv_of(rows)))


def unreadable(
    ods: Ingesting, form: str, name: str, broken: bytes, code: str, told: str, make: Callable[[Rows], bytes]
) -> None:
    """Go through what becomes of a file that can't be read, and of the good one beside it, by each policy.

    The policies are the same for all formats, so some are enough.
    """
    reading(ods, form)
    before = ods.rows if ods.content is not None else []
    ods.write(name, broken)
    ods.write("z" + name, make([(9, "z")]))
    with pytest.raises(RunnelError, match=told) as raised:
        ods.run()
    assert (raised.value.code, raised.value.exit_code) == (code, 1)
    assert f"data/{name}" in raised.value.what
    assert "--" not in (raised.value.fix or "")
    if name not in ("b.csv.gz", "b.json", "b.parquet"):
        return
    ods.declare("v1", on_bad="quarantine")
    ods.run()
    assert ods.rows == [*before, (9, "z")]
    [(raw, reason, file)] = aside(ods)
    assert (raw, file) == (None, f"data/{name}")
    assert told in reason
    assert ods.done.unread_reasons == (reason,)
    assert ods.run().is_empty  # until it changes
    ods.write(name, make([(8, "y")]))
    ods.run()
    assert (ods.rows, aside(ods)) == (sorted([*before, (8, "y"), (9, "z")]), [])
    ods.declare("v1", on_bad="drop")
    ods.write(name, broken)
    ods.run()
    assert (ods.rows, ods.done.unread_reasons) == ([*before, (9, "z")], (reason,))
    assert ods.run().is_empty


BAD = {
    "jsonl": b'{"id": 1, "name": "a"}\n{"id": "x"}\n{"id": \n',
    "json": b'[{"id": 1, "name": "a"}, {"id": "x"},\n 5]',
    "xml": b"<o><r><id>1</id><name>a</name></r><r><id>x</id></r><r>y</r></o>",
    "csv": b"id,name\n1,a\nx,b\n2,b,c\n",
}


@pytest.mark.parametrize("form", BAD)
def test_bad_rows(ods: Ingesting, form: str) -> None:
    reading(ods, form, schema="id long not null, name string")
    ods.declare("v1", on_new_column="ignore")
    ods.write("a", BAD[form])
    with pytest.raises(RunnelError, match="2 rows of data/a can't be loaded"):
        ods.run()
    ods.declare("v1", on_bad="quarantine")
    ods.run()
    assert (ods.rows, ods.done.dropped) == ([(1, "a")], 2)
    assert len(aside(ods)) == 2
    assert any("x" in raw for raw, _, _ in aside(ods))
    word = "record" if form in ("json", "xml") else "line"
    assert all(f"data/a, {word} " in reason for _, reason, _ in aside(ods))


def test_a_json_document(ods: Ingesting) -> None:
    reading(ods, "json", schema="id long, at struct<city: string, zip: int>, tags string", records="data.items")
    ods.write("a.json", '{"n": 1, "data": {"items": [{"id": 1, "at": {"city": "x", "zip": 5}, "tags": [1, 2]}]}}')
    ods.write("b.json", '{"data": {"items": {"id": 2}}}')
    ods.write("c.json", '{"data": {"items": []}}')
    ods.run()
    assert ods.rows == [(1, {"city": "x", "zip": 5}, "[1,2]"), (2, None, None)]
    ods.write("c.json", '{"data": {"items": [{"at": {"zip": 9}}, {"at": {"zip": 1.5}}]}}')
    with pytest.raises(RunnelError, match=r"data/c.json, record 2, column `at`"):
        ods.run()
    (ods.root / "data/c.json").unlink()
    ods.write("d.json", '{"dat": 1}')
    with pytest.raises(RunnelError, match=r"data/d.json has no records at 'data.items'; it has 'dat'"):
        ods.run()


def test_json_as_it_stands(ods: Ingesting) -> None:
    reading(ods, "json", schema="id long, x decimal(20,3)")
    ods.write("one.json", '{\n "id": 1\n}')
    ods.write("lines.json", '{"id": 2}\n{"id": 3}\n')
    ods.write("many.json", '[{"id": 4, "x": "12345678901234567.891"}]')
    ods.write("none.json", "[]")
    ods.run()
    assert ods.rows == [(1, None), (2, None), (3, None), (4, Decimal("12345678901234567.891"))]
    ods.write("text.json", '"x"')
    with pytest.raises(RunnelError, match="neither an array of records nor one record"):
        ods.run()


def test_xml(ods: Ingesting) -> None:
    schema = "id long, at date, lines array<struct<sku: string, qty: int>>, note string, tag array<string>"
    reading(ods, "xml", schema=schema, row_tag="order", date_format="%d.%m.%Y")
    ods.write(
        "a.xml",
        """<x:shop xmlns:x="http://x"><head><name>n</name></head><orders>
        <x:order id="1"><at>31.12.2026</at><lines><line><sku>a</sku><qty>2</qty></line><line sku="b" qty="3"/></lines>
          <note lang="en">so &amp; so</note><tag>p</tag><tag>q</tag></x:order>
        <x:order id="2"><lines><line><sku>c</sku><qty>4</qty></line></lines><note/><tag>p</tag></x:order>
        </orders></x:shop>""",
    )
    ods.run()
    assert ods.rows[0] == (
        1,
        date(2026, 12, 31),
        [{"sku": "a", "qty": 2}, {"sku": "b", "qty": 3}],
        '{"lang":"en","value":"so & so"}',
        ["p", "q"],
    )
    assert ods.rows[1] == (2, None, [{"sku": "c", "qty": 4}], None, ["p"])


REFUSED = {
    "entities": ('<!DOCTYPE o [<!ENTITY a "aa">]><o><r>&a;</r></o>', "declares the entity 'a'"),
    "outside": ('<!DOCTYPE o [<!ENTITY a SYSTEM "/etc/passwd">]><o><r>&a;</r></o>', "declares the entity 'a'"),
    "deep": (f"<o>{'<r>' * 200}{'</r>' * 200}</o>", "nested more than 100 deep"),
    "no such row": ("<o><Row/></o>", "no element <row>; it has <Row>"),
    "another encoding": (b'<?xml version="1.0" encoding="utf-8"?><o><row>\xe9</row></o>', "invalid token"),
}


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED)
def test_xml_that_is_refused(ods: Ingesting, text: str | bytes, told: str) -> None:
    row_tag = {"row_tag": "row"} if b"row" in (text if isinstance(text, bytes) else text.lower().encode()) else {}
    reading(ods, "xml", **row_tag)
    ods.write("a.xml", text)
    with pytest.raises(RunnelError, match=told) as raised:
        ods.run()
    assert raised.value.code == "SOURCE_XML"


def test_avro_types(ods: Ingesting) -> None:
    def field(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": kind}

    fields = [
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}),
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        field("kind", {"type": "enum", "name": "kind", "symbols": ["A", "B"]}),
        field("tags", {"type": "map", "values": "int"}),
        field("inner", {"type": "record", "name": "inner", "fields": [field("n", "int")]}),
        field("either", ["null", "string", "long"]),
        field("who", {"type": "string", "logicalType": "uuid"}),
        field("opens", ["null", {"type": "int", "logicalType": "time-millis"}]),
    ]
    row = {"price": Decimal("1.50"), "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, tzinfo=UTC)}
    row |= {"kind": "B", "tags": {"x": 1}, "inner": {"n": 5}, "either": 7, "who": UUID(int=5), "opens": time(8, 30)}
    schema = {"type": "record", "name": "order", "fields": fields}
    reading(ods, "avro", schema=None)
    ods.write("a.avro", _written(lambda out: fastavro.writer(out, schema, [row], codec="deflate")))
    ods.run()
    [(price, day, at, kind, tags, inner, either, who, opens)] = ods.rows
    assert (price, day, at, kind) == (Decimal("1.50"), date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC), "B")
    assert (dict(tags), inner, either) == ({"x": 1}, {"n": 5}, "7")
    assert (who, opens) == (str(UUID(int=5)), "08:30:00")


def test_columns_in_the_path(ods: Ingesting) -> None:
    reading(ods, "orc", "data/**/*.orc", schema=None)
    ods.write("day=2026-01-02/a.orc", orc_of([(1, "a")]))
    ods.run()
    assert ods.rows == [(1, "a", date(2026, 1, 2))]


def test_text(ods: Ingesting) -> None:
    reading(ods, "text", schema=None)
    ods.write("a.log", b"\xef\xbb\xbfone\r\n\ntw\xc3\xb6")
    ods.write("b.log.gz", gzip.compress(b"x,y\n"))
    ods.write("empty.log", b"")
    ods.run()
    assert sorted(ods.rows) == [(1, "one"), (1, "x,y"), (2, ""), (3, "twö")]
    ods.write("c.log", b"good\ncaf\xe9\n")
    with pytest.raises(RunnelError, match="byte 0xe9 at position 3 of the line is not UTF-8"):
        ods.run()
    ods.declare("v1", on_bad="quarantine")
    ods.run()
    assert (len(ods.rows), ods.done.dropped, len(aside(ods))) == (5, 1, 1)
    reading(ods, "text", schema=None, encoding="latin-1")
    ods.declare("v2")
    ods.run()
    assert (2, "café") in ods.rows


def test_binary(ods: Ingesting) -> None:
    reading(ods, "binary", schema=None)
    ods.write("a.png", b"\x00\xff")
    ods.write("empty", b"")
    ods.run()
    (path, size, at, sha256, content), other = ods.rows
    assert (path, size, content, len(sha256), at.tzinfo is not None) == ("data/a.png", 2, b"\x00\xff", 64, True)
    assert other[:2] == ("data/empty", 0)
    (ods.root / "data/a.png").rename(ods.root / "data/b.png")
    ods.declare("v1", removed="delete")
    ods.run()
    assert [row[0] for row in ods.rows] == ["data/b.png", "data/empty"]


def test_load_takes_the_same_formats(loading: Loading, data: Writing, store: Any) -> None:
    for form, (make, _) in FORMATS.items():
        data(f"orders.{form}", make([(1, form)]))
        assert loading(f"orders.{form}", on_new_column="ignore").rows == 1
    assert sorted(row[1] for row in rows_of(store, "ods.orders")) == sorted(FORMATS)
