"""Ten kinds of files as people have them are read with at most one correction, which the first message named.

Each starts with a schema, and hardly with options. The correction is pasted as the fix says it.
"""

import gzip
import io
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runnel as rn
from runnel.declare.model.endpoints import Files
from runnel.errors import Mistake, RunnelError
from runnel.run.sources.source_ingest import build_row_warnings
from tests.connect.ingest.file_source import Ingesting
from tests.lake.factories import read as rows_of
from tests.run.project import Project


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def parquet(**columns: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@dataclass(frozen=True)
class Kind:
    """Files of one kind: the schema that a newcomer writes, the fix of the first message (none: it works), the rows."""

    files: dict[str, bytes]
    schema: str | None
    rows: list[tuple[Any, ...]]
    fix: str | None = None
    bad: int = 0
    new_columns: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


US_ROWS = 'Order ID,At,Units\r\n1,3/4/2025 12:05 AM,"12,000"\r\n2,3/14/2025 1:05 PM,5\r\n'
US_TABLE = [(1, utc(2025, 3, 4, 0, 5), 12000), (2, utc(2025, 3, 14, 13, 5), 5)]
US_FIX = 'add skip=1, thousands=",", timestamp_format="M/d/yyyy h:mm a" to rn.files'
US_SCHEMA = "`Order ID` long, At timestamp, Units long"
KINDS = {
    "semicolons, German numbers and dates": Kind(
        {"a.csv": b"Nr;Datum;Betrag;Menge\r\n1;31.12.2025;1.234,56;1.000\r\n2;01.02.2025;7,00;12\r\n"},
        "Nr long, Datum date, Betrag decimal(12,2), Menge long",
        [(1, date(2025, 12, 31), Decimal("1234.56"), 1000), (2, date(2025, 2, 1), Decimal("7.00"), 12)],
        'add delimiter=";", decimal=",", thousands=".", date_format="dd.MM.yyyy" to rn.files',
    ),
    "German numbers of which only the decimal comma is declared": Kind(
        {"a.csv": b"Nr;Betrag\n1;1.234,56\n2;2.345,00\n3;1,50\n"},
        "Nr long, Betrag decimal(12,2)",
        [(1, Decimal("1234.56")), (2, Decimal("2345.00")), (3, Decimal("1.50"))],
        'add thousands="." to rn.files',
        options={"delimiter": ";", "decimal": ","},
    ),
    "texts that mean null": Kind(
        {"a.csv": b"id,name,rate,day\n1,,N/A,2025-01-01\n2,x,1.5,NULL\n3,y,N/A,NULL\n4,z,2.5,\n"},
        "id long, name string, rate double, day date",
        [
            (1, None, None, date(2025, 1, 1)),
            (2, "x", 1.5, None),
            (3, "y", None, None),
            (4, "z", 2.5, None),
        ],
        'add null=["", "N/A", "NULL"] to rn.files',
    ),
    "cp1252": Kind(
        {"a.csv": "id,ort\n1,Köln\n".encode("cp1252")},
        "id long, ort string",
        [(1, "Köln")],
        'name the encoding: encoding="cp1252"',
    ),
    "UTF-16 with tabs in a .txt": Kind(
        {"a.txt": "Artikel\tGeändert\r\nΩ\t2025-01-02 10:00:00\r\n".encode("utf-16")},
        "Artikel string, `Geändert` timestamp",
        [("Ω", utc(2025, 1, 2, 10))],
        'add encoding="utf-16", format="csv", delimiter="\\t" to rn.files',
    ),
    "gzip, of which one file has a column more": Kind(
        {"a.csv.gz": gzip.compress(b"id,t\n1,1.5\n"), "b.csv.gz": gzip.compress(b"id,t,h\n2,2.5,9\n")},
        "id long, t double",
        [(1, 1.5, None), (2, 2.5, 9)],
        new_columns=("h",),
    ),
    "gzip, of which one file lacks a column": Kind(
        {"a.csv.gz": gzip.compress(b"id,t\n1,1.5\n"), "b.csv.gz": gzip.compress(b"id,t,h\n2,2.5,9\n")},
        "id long, t double, h long",
        [(1, 1.5, None), (2, 2.5, 9)],
        "correct the name in the file or in the source's schema; if files may lack it, "
        'add missing_columns="null" to rn.files',
    ),
    "nested JSON lines with a surprise": Kind(
        {"a.jsonl": b'{"id": 1, "u": {"g": "DE"}, "d": "x"}\n{"id": "2", "u": {}, "d": {"os": "ios"}}\n'},
        "id long, u struct<g: string>, d string",
        [(1, {"g": "DE"}, "x"), (2, {"g": None}, '{"os":"ios"}')],
    ),
    "US report with a title": Kind(
        {"a.csv": b"Sales Report - Q1 2025\r\n" + US_ROWS.encode()}, US_SCHEMA, US_TABLE, US_FIX
    ),
    "US report with a title of another line ending": Kind(
        {"a.csv": b"Sales Report - Q1 2025\n" + US_ROWS.encode()}, US_SCHEMA, US_TABLE, US_FIX
    ),
    "Excel's sep= line": Kind(
        {"a.csv": b"sep=;\nid;v\n1;2,5\n"},
        "id long, v double",
        [(1, 2.5)],
        'add delimiter=";", skip=1, decimal="," to rn.files',
    ),
    "log with epochs, line breaks and bad rows": Kind(
        {
            "a.csv": b'ts,msg\n1735689600000,"a\nb"\n1735689600000,x,y\n'
            + b"1735689601000,ok\n" * 20
            + b"not-a-number,x\n1735689600000\n"
        },
        "ts timestamp, msg string",
        [(utc(2025, 1, 1), "a\nb"), *[(utc(2025, 1, 1, 0, 0, 1), "ok")] * 20],
        'add timestamp_format="epoch_ms" to rn.files; 3 rows are bad even so: correct them, or add on_bad="drop" or '
        'on_bad="quarantine" to rn.source',
        bad=3,
    ),
    "Parquet of pandas": Kind(
        {
            "a.parquet": parquet(
                ts=pa.array([1767225599999999999], pa.timestamp("ns")), lag=pa.array([5], pa.duration("ns"))
            )
        },
        None,
        [(datetime(2025, 12, 31, 23, 59, 59, 999_999), 5)],
    ),
    "JSON with its records inside": Kind(
        {"a.json": b'{"status": "ok", "data": {"count": 2, "items": [{"sku": "K1"}, {"sku": "K2"}]}}'},
        "sku string",
        [("K1",), ("K2",)],
        'add records="data.items" to rn.files',
    ),
    "XML with its rows inside": Kind(
        {
            "a.xml": '<?xml version="1.0" encoding="ISO-8859-1"?><e><head><at>x</at></head>'
            '<orders><order id="1"><city>Köln</city></order><order id="2"/></orders></e>'.encode("latin-1")
        },
        "id long, city string",
        [(1, "Köln"), (2, None)],
        'add row_tag="order" to rn.files',
    ),
    "XML of one row with a list inside": Kind(
        {"a.xml": b'<e><order id="1"><line>a</line><line>b</line></order></e>'},
        "id long",
        [(1, ["a", "b"])],
        new_columns=("line",),
    ),
    "a text among objects": Kind(
        {"a.jsonl": b'{"p": {"ms": 1}}\n{"p": "timeout"}\n'},
        "p string",
        [('{"ms":1}',), ("timeout",)],
    ),
    "array of JSON objects": Kind(
        {"a.json": b'[{"sku": "K1", "price": 0.5}]'}, "sku string, price double", [("K1", 0.5)]
    ),
    "no header": Kind(
        {"a.csv": b"1,Station 1,48.00,false,2025-01-01\n2,Station 2,48.01,true,2025-01-02\n"},
        "id long, name string, lat double, active boolean, opened date",
        [(1, "Station 1", 48.0, False, date(2025, 1, 1)), (2, "Station 2", 48.01, True, date(2025, 1, 2))],
        "add header=False to rn.files",
    ),
}


def read_fix(fix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of `rn.files` and of `rn.source` that a fix names, as one would paste them."""
    match = re.search(r'add (.*?) to rn\.files|(encoding="[\w-]+")', fix)
    assert match
    files_options: dict[str, Any] = eval(f"dict({match[1] or match[2]})")
    return files_options, {"on_bad": "quarantine"} if 'on_bad="quarantine"' in fix else {}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_at_most_one_correction_that_the_message_named(ods: Ingesting, kind: Kind) -> None:
    for name, contents in kind.files.items():
        ods.write(name, contents)
    glob = "data/*." + next(iter(kind.files)).partition(".")[2]

    def declare(files_options: dict[str, Any], source_options: dict[str, Any]) -> None:
        origin = rn.files(glob, schema=kind.schema, **{**kind.options, **files_options})
        assert isinstance(origin, Files)
        ods.source = replace(ods.source, origin=origin, **source_options)

    declare({}, {})
    if kind.fix is not None:
        with pytest.raises(RunnelError) as raised:
            ods.run()
        assert raised.value.fix == kind.fix
        declare(*read_fix(kind.fix))
    ods.run()
    assert sorted(ods.rows, key=str) == sorted(kind.rows, key=str)
    assert ods.done is not None
    assert ods.done.dropped == kind.bad
    assert ods.done.new_columns == kind.new_columns


def test_a_text_in_a_column_of_objects_can_be_read_as_text(ods: Ingesting) -> None:
    ods.source = replace(ods.source, origin=rn.files("data/*.jsonl", schema="p struct<ms: long>"))
    ods.write("a.jsonl", '{"p": {"ms": 1}}\n{"p": "timeout"}\n')
    with pytest.raises(RunnelError) as raised:
        ods.run()
    assert raised.value.fix == (
        'correct them, or load the good rows only: on_bad="drop" or on_bad="quarantine" in rn.source; '
        "or declare p as string, which keeps all its values as text"
    )


def test_one_dropped_row(ods: Ingesting) -> None:
    ods.source = replace(ods.source, origin=rn.files("data/*.csv", schema="id long"), on_bad="drop")
    ods.write("a.csv", "id\n1\nx\n")
    ods.run()
    assert ods.done is not None
    assert build_row_warnings(ods.done) == ("1 bad row was dropped",)


def test_a_text_file_that_is_csv_without_a_schema(ods: Ingesting) -> None:
    """The fix for a file that looked like a log names the schema, too."""
    ods.source = replace(ods.source, origin=rn.files("data/*.txt"))
    ods.write("a.txt", "ID\tOrt\r\n1\tKöln\r\n".encode("utf-16"))
    with pytest.raises(RunnelError) as raised:
        ods.run()
    assert raised.value.fix == (
        'add encoding="utf-16", format="csv", delimiter="\\t", schema="ID long, Ort string" to rn.files'
    )


def test_a_total_in_the_last_line(tmp_path: Path) -> None:
    """Two titles and a total: one correction names all that the file needs."""
    project = Project(tmp_path)
    rows = "".join(f"2026-01-{day:02},{day}.50\n" for day in range(1, 6))
    project.write("data/a.csv", f"Report\nof January\nday,amount\n{rows}Total,17.50\n")
    project.write("flows/flow.py", 'import runnel as rn\nrn.source("ods.sales", rn.files("data/*.csv"))\n')
    with pytest.raises(Mistake) as raised:
        project.run()
    assert raised.value.fix == (
        'add skip=2, schema="day date, amount double" (from the first rows of data/a.csv; its last line seems to be a '
        'total: add on_bad="drop" to rn.source)'
    )
    files = 'rn.files("data/*.csv", skip=2, schema="day date, amount double")'
    project.write("flows/flow.py", f'import runnel as rn\nrn.source("ods.sales", {files}, on_bad="drop")\n')
    project.run()
    assert project.rows("ods.sales") == [(date(2026, 1, day), day + 0.5) for day in range(1, 6)]


def test_an_empty_folder_needs_the_option_that_the_message_names(tmp_path: Path) -> None:
    project = Project(tmp_path)
    flow = 'import runnel as rn\nrn.source("ods.later", rn.files("data/*.csv", schema="id long"%s))\n'
    project.write("flows/flow.py", flow % "")
    with pytest.raises(Mistake) as raised:
        project.run()
    assert (raised.value.fix or "").endswith("rn.files(..., may_be_empty=True) creates a table without rows")
    project.write("flows/flow.py", flow % ", may_be_empty=True")
    project.run()
    assert project.rows("ods.later") == []


def test_a_run_that_sets_aside_every_row_warns(ods: Ingesting) -> None:
    ods.source = replace(
        ods.source, origin=rn.files("data/*.csv", schema="ts timestamp, msg string"), on_bad="quarantine"
    )
    ods.write("a.csv", "ts,msg\n1735689600000,a\n1735689601000,b\n")
    ods.run()
    assert ods.done is not None
    assert ods.done.warnings == (
        'all 2 rows of data/a.csv can\'t be loaded: add timestamp_format="epoch_ms" to rn.files',
    )


SET_ASIDE = {
    "all rows": (
        {"a.csv": b"id,d\n1,3/4/2025\n2,3/14/2025\n"},
        'all 2 rows of data/a.csv can\'t be loaded: add date_format="M/d/yyyy" to rn.files',
    ),
    "days that may be months": (
        {"a.csv": b"id,d\n1,03/04/2025\n2,03/05/2025\n"},
        'all 2 rows of data/a.csv can\'t be loaded: add date_format="dd/MM/yyyy" to rn.files; '
        "if the month comes first, exchange day and month",
    ),
    "most rows": (
        {"a.csv": b"id,d\n1,3/4/2025\n2,3/14/2025\n3,\n"},
        '2 of 3 rows of data/a.csv can\'t be loaded: add date_format="M/d/yyyy" to rn.files',
    ),
    "all rows of one file": (
        {"a.csv": b"id,d\n1,2025-01-01\n2,2025-01-02\n3,2025-01-03\n", "b.csv": b"id,d\n1,3/14/2025\n"},
        'no row of data/b.csv can be loaded: add date_format="M/d/yyyy" to rn.files',
    ),
    "a file that can't be read": (
        {"a.csv": b"id,d\n1,2025-01-01\n", "b.csv": b"id;d\n1;3/14/2025\n"},
        'data/b.csv could be read: add delimiter=";", date_format="M/d/yyyy" to rn.files',
    ),
}


@pytest.mark.parametrize("on_bad", ["drop", "quarantine"])
@pytest.mark.parametrize(("files", "warning"), SET_ASIDE.values(), ids=SET_ASIDE)
def test_a_run_warns_of_rows_that_an_option_would_make_good(
    tmp_path: Path, files: dict[str, bytes], warning: str, on_bad: str
) -> None:
    project = Project(tmp_path)
    for name, contents in files.items():
        project.write(f"data/{name}", "")
        (tmp_path / "data" / name).write_bytes(contents)
    source = f'rn.source("ods.x", rn.files("data/*.csv", schema="id long, d date"), on_bad="{on_bad}")'
    project.write("flows/flow.py", f"import runnel as rn\n{source}\n")
    [step] = [step for step in project.run().steps if str(step.table) == "ods.x"]
    assert warning in step.warnings


def test_bad_rows_that_no_option_helps(ods: Ingesting) -> None:
    """The report counts rows, not the lines that it prints."""
    ods.source = replace(ods.source, origin=rn.files("data/*.csv", schema="a long, b long"))
    ods.write("a.csv", "a,b\n" + "x,y\n" * 30 + "1,2\n")
    with pytest.raises(RunnelError) as raised:
        ods.run()
    assert raised.value.what.endswith("    ... and 20 more rows")
    assert raised.value.fix == (
        'correct them, or load the good rows only: on_bad="drop" or on_bad="quarantine" in rn.source'
    )


def test_a_column_that_is_declared_as_text(ods: Ingesting) -> None:
    """Nothing is said of the text among its numbers."""
    ods.source = replace(ods.source, origin=rn.files("data/*.csv", schema="id long, note string"))
    ods.write("a.csv", "id,note\n" + "1,2\n" * 150 + "2,five\nx,1\n")
    with pytest.raises(RunnelError) as raised:
        ods.run()
    assert raised.value.fix == (
        'correct them, or load the good rows only: on_bad="drop" or on_bad="quarantine" in rn.source'
    )


def test_columns_that_parquet_files_lack(ods: Ingesting) -> None:
    ods.source = replace(
        ods.source,
        origin=rn.files("data/*.parquet", schema="id long, v double, n string not null", missing_columns="null"),
        on_bad="quarantine",
    )
    ods.write("a.parquet", parquet(id=pa.array([1]), n=pa.array(["x"])))
    ods.write("b.parquet", parquet(id=pa.array([2])))
    ods.run()
    assert ods.rows == [(1, None, "x")]
    assert ods.done is not None
    assert ods.done.dropped == 1


WRONG_PLACES = {
    "on_bad": (
        ("data/*.csv", {"on_bad": "drop"}),
        "rn.files('data/*.csv'): `on_bad` is an option of rn.source",
        "move it to rn.source(..., on_bad=...)",
    ),
    "delimiter": (
        ("data/*.txt", {"delimiter": ";"}),
        "rn.files('data/*.txt'): `delimiter` applies only to CSV, but this is text",
        'add format="csv" if it is CSV, or leave it out',
    ),
}


@pytest.mark.parametrize(("call", "what", "fix"), WRONG_PLACES.values(), ids=WRONG_PLACES)
def test_options_in_the_wrong_place(call: tuple[str, dict[str, Any]], what: str, fix: str) -> None:
    with pytest.raises(Mistake) as raised:
        rn.files(call[0], **call[1])
    assert (raised.value.what, raised.value.fix) == (what, fix)


def test_an_empty_file_is_mentioned_and_umlauts_are_shown_as_they_are(ods: Ingesting) -> None:
    ods.source = replace(ods.source, origin=rn.files("data/*.csv", schema="id long, b boolean"), on_bad="quarantine")
    ods.write("a.csv", "")
    ods.write("b.csv", "id,b\n1,vielleicht nö\n2,true\n")
    ods.run()
    assert ods.done is not None
    assert ods.done.warnings == ("data/a.csv is empty",)
    [(_, reason, *_rest)] = rows_of(ods.store, "quarantine.ods_orders")
    assert reason == "data/b.csv, line 2, column `b`: 'vielleicht nö': not a boolean"


def test_options_of_files_are_not_suggested_for_other_sources(tmp_path: Path) -> None:
    project = Project(tmp_path)
    function = '@rn.source("ods.n", schema="at timestamp")\ndef n(state):\n    return [{"at": 1735689600000}], {}\n'
    project.write("flows/flow.py", f"import runnel as rn\n\n\n{function}")
    [step] = project.run().steps
    assert step.error is not None
    assert step.error.code == "SOURCE_BAD_ROWS"
    assert "rn.files" not in (step.error.fix or "")
