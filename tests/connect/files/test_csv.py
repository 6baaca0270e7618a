"""Dialects of CSV: what each option means, and where a bad row stands in spite of it."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from runnel.connect.files.csv import CsvReader
from runnel.connect.files.file_patterns import make_local_file
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.connect.load.quarantine import read_version_rows
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import quarantine_table_of
from runnel.errors import Mistake, RunnelError
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_connection import connect_duckdb
from tests.connect.ingest.file_source import Ingesting
from tests.lake.factories import read as rows_of

SCHEMA = "id long, name string"
A, B = (1, "a"), (2, "b")

DIALECTS: dict[str, tuple[dict[str, Any], str | bytes, list[Any]]] = {
    "delimiter": ({"delimiter": ";"}, "id;name\n1;a\n2;b\n", [A, B]),
    "delimiter of several characters": ({"delimiter": "||"}, 'id||name\n1||"a||\n|"\n2||b\n', [(1, "a||\n|"), B]),
    "no header": ({"header": "false"}, "1,a\n2,b\n", [A, B]),
    "several nulls": (
        {"null": ("NA", "-")},
        'id,name\n1,NA\n2,-\n3,"NA"\n4,\n',
        [(1, None), (2, None), (3, "NA"), (4, "")],
    ),
    "quote": ({"quote": "'"}, "id,name\n1,'a,\"b'\n", [(1, 'a,"b')]),
    "no quote": ({"quote": ""}, 'id,name\n1,"a\n', [(1, '"a')]),
    "escape": ({"escape": "\\"}, 'id,name\n1,"a\\"b"\n2,"c\\\\"\n', [(1, 'a"b'), (2, "c\\")]),
    "comment": (
        {"comment": "#"},
        '#x\nid,name\n#y\n1,a # no comment\n2,"b\n#c"\n#z',
        [(1, "a # no comment"), (2, "b\n#c")],
    ),
    "skip": ({"skip": "2"}, 'made "by\n\nid,name\n1,a\n', [A]),
    "skip and comment": ({"skip": "1", "comment": "#"}, "x\r\n# y\r\nid,name\r\n# z\r\n1,a\r\n", [A]),
    "missing columns": ({"missing": "null"}, "id,name\n1\n2,b\n", [(1, None), B]),
    "trim": ({"trim": "true", "null": ("NA",)}, " id , name \n 1 , a b \n2, NA\n", [(1, "a b"), (2, None)]),
    "encoding": ({"encoding": "cp1252"}, "id,name\n1,€\n".encode("cp1252"), [(1, "€")]),
    "skipped lines end in another way": ({"skip": "1"}, "Title\nid,name\r\n1,a\r\n2,b\r\n", [A, B]),
    "skipped lines end with more": ({"skip": "1"}, "Title\r\nid,name\n1,a\n2,b\n", [A, B]),
    "skipped lines with a value of two lines": ({"skip": "2"}, 'Title,"x\ny"\nid,name\n1,a\n2,b\n', [A, B]),
    "skip before an empty line": ({"skip": "1"}, "Title\n\nid,name\n1,a\n2,b\n", [A, B]),
    "empty lines before the header": ({}, "\n\nid,name\n1,a\n2,b\n", [A, B]),
}


def reading(ods: Ingesting, schema: str, options: dict[str, Any]) -> None:
    pairs = [(name, one) for name, value in options.items() for one in ([value] if isinstance(value, str) else value)]
    ods.source = replace(ods.source, origin=Files("data/*.csv", "csv", parse_columns(schema), options=tuple(pairs)))


@pytest.mark.parametrize(("options", "text", "rows"), DIALECTS.values(), ids=DIALECTS)
def test_a_dialect(ods: Ingesting, options: dict[str, Any], text: str | bytes, rows: list[Any]) -> None:
    reading(ods, SCHEMA, options)
    ods.write("a.csv", text)
    ods.run()
    assert ods.rows == rows


PLACES: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "delimiter of several characters": ({"delimiter": "||"}, 'id||name\n1||"a\n|"\nx||b\n', 4, "x||b"),
    "escape": ({"escape": "\\"}, 'id,name\n1,"a\\"\n\\\\"\nx,b\n', 4, "x,b"),
    "comment": ({"comment": "#"}, "#x\nid,name\n#y\n#z\n1,a\n#\nx,b\n", 7, "x,b"),
    "comment, ragged": ({"comment": "#"}, "#x\nid,name\n#y\n#z\n1,a\n#\n2\n", 7, "2"),
    "skip": ({"skip": "2"}, "a\nb\nid,name\n1,a\nx,b\n", 5, "x,b"),
    "skip, ragged": ({"skip": "2"}, "a\nb\nid,name\n1,a\n2,b,c\n", 5, "2,b,c"),
    "missing columns": ({"missing": "null"}, "id,name\n1\nx,b\n", 3, "x,b"),
    "missing columns, too many": ({"missing": "null"}, "id,name\n1\n2,b,c\n", 3, "2,b,c"),
}


@pytest.mark.parametrize(("options", "text", "line", "raw"), PLACES.values(), ids=PLACES)
def test_a_bad_row_of_a_dialect(ods: Ingesting, options: dict[str, Any], text: str, line: int, raw: str) -> None:
    reading(ods, SCHEMA, options)
    ods.declare("v1", on_bad="quarantine")
    ods.write("a.csv", text)
    ods.run()
    [(found, reason, *_)] = rows_of(ods.store, "quarantine.ods_orders")
    assert found == raw
    assert f"data/a.csv, line {line}" in reason
    assert len(ods.rows) == 1


_TWO_LINES = 'id,name\n1,"a\nb"\n'
BAD_LINES: dict[str, tuple[dict[str, Any], str | bytes, dict[int, str]]] = {
    "value of two lines": ({}, _TWO_LINES + "x,e\n2,x,y\n3,ok\n", {4: "x,e", 5: "2,x,y"}),
    "carriage returns": ({}, (_TWO_LINES + "x,e\n2,x,y\n").replace("\n", "\r\n"), {4: "x,e", 5: "2,x,y"}),
    "bad encoding": ({}, _TWO_LINES.encode() + b"x,e\n4,\xff\ny,f\n", {4: "x,e", 5: "4,?", 6: "y,f"}),
    "broken quotes": ({}, _TWO_LINES + '"5"x,q\nx,e\n', {4: '"5"x,q', 5: "x,e"}),
    "skip": ({"skip": "2"}, "t\nu\n" + _TWO_LINES + "x,e\n2,x,y\n", {6: "x,e", 7: "2,x,y"}),
    "skip, other line endings": ({"skip": "1"}, "t\r\n" + _TWO_LINES + "x,e\n2,x,y\n", {5: "x,e", 6: "2,x,y"}),
    "comments": ({"comment": "#"}, "#c\n" + _TWO_LINES + "#c\nx,e\n#c\n2,x,y\n", {6: "x,e", 8: "2,x,y"}),
    "empty lines": ({}, _TWO_LINES + "\nx,e\n\n\n2,x,y\n", {5: "x,e", 8: "2,x,y"}),
}


@pytest.mark.parametrize(("options", "text", "bad_lines"), BAD_LINES.values(), ids=BAD_LINES)
def test_every_bad_row_is_quarantined_with_its_own_line(
    ods: Ingesting, options: dict[str, Any], text: str | bytes, bad_lines: dict[int, str]
) -> None:
    reading(ods, SCHEMA, options)
    ods.declare("v1", on_bad="quarantine")
    ods.write("a.csv", text)
    ods.run()
    quarantined_rows = read_version_rows(
        ods.store,
        load_metadata(ods.store, ods.store.state()[quarantine_table_of(ods.source.table)].location),
    )
    assert {int((row.position or "").split()[-1]): row.raw for row in quarantined_rows} == bad_lines
    assert len(quarantined_rows) == ods.done.dropped == len(bad_lines)


def test_lines_of_comments_count_in_files_of_one_column(ods: Ingesting) -> None:
    reading(ods, "id long", {"comment": "#"})
    ods.write("a.csv", "#c\nid\n1\n#c\n#c\nx\n")
    with pytest.raises(RunnelError, match=r"data/a.csv, line 6, column `id`: 'x': not a long"):
        ods.run()


def test_a_file_whose_rows_vanish_is_an_error(ods: Ingesting) -> None:
    reading(ods, SCHEMA, {})
    ods.write("a.csv", "id,name\n1,a\n")
    with connect_duckdb() as con, ScratchFiles() as scratch:
        reader = CsvReader(con, [make_local_file("a.csv", ods.root / "data" / "a.csv")], scratch, CsvOptions())
        with pytest.raises(Mistake, match=r"no row of a.csv could be read, although it has rows"):
            reader.check_rows(0)
        reader.check_rows(1)


def test_numbers_and_times(ods: Ingesting) -> None:
    options = {"delimiter": ";", "decimal": ",", "date_format": "%d.%m.%Y", "timestamp_format": "%d.%m.%Y %H:%M"}
    reading(ods, "amount decimal(8,2), rate double, day date, at timestamp", options)
    ods.write("a.csv", "amount;rate;day;at\n1234,50;-0,5;31.12.2026;31.12.2026 23:59\n;;;\n")
    ods.run()
    at = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert ods.rows[0] == (Decimal("1234.50"), -0.5, date(2026, 12, 31), at)
    for bad in ("1.5;1;01.01.2026;", "1;1;2026-01-01;", "1;1.5;01.01.2026;", "1;1;32.01.2026;"):
        ods.write("b.csv", f"amount;rate;day;at\n{bad}\n")
        with pytest.raises(RunnelError, match=r"1 row of data/b.csv can't be loaded"):
            ods.run()


def test_a_file_without_a_declared_column_is_set_aside_as_a_whole(ods: Ingesting) -> None:
    reading(ods, SCHEMA, {})
    ods.declare("v1", on_bad="quarantine")
    ods.write("a.csv", "id,name\n1,a\n")
    ods.write("b.csv", "id,nmae\n2,b\n")
    ods.write("c.csv", b"id,name\r\n3,c\n4,d\r\n")
    ods.run()
    assert ods.rows == [A]
    found = sorted(row[1] for row in rows_of(ods.store, "quarantine.ods_orders"))
    assert found[0] == "data/b.csv lacks `name`; close: `nmae`"
    assert "data/c.csv, line 2: it ends with" in found[1]
    assert ods.run().is_empty


def test_nothing_is_left_where_no_file_says_the_columns(ods: Ingesting) -> None:
    ods.source = replace(ods.source, origin=Files("data/*", "parquet"), on_bad="quarantine")
    ods.write("a.parquet", b"nothing")
    with pytest.raises(RunnelError, match="not a complete Parquet file"):
        ods.run()
