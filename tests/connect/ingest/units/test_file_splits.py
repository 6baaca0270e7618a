"""Pieces of large files as units: whatever the ranges are, the result is that of the whole files."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.ingest.read_request import build_files_request
from runnel.connect.ingest.units.file_unit import is_splittable
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.errors import RunnelError
from runnel.lake.iceberg import table_metadata
from runnel.lake.store import Store
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.lake.factories import read as rows_of
from tests.lake.pickling_runner import PicklingRunner

ONE_LINE = (("multiline", "false"),)
Reading = Callable[..., dict[str, Any]]


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    """Return a function that reads files as a whole, or in splits of so many bytes, and returns what became of them."""
    stores: list[Store] = []

    def read(files: dict[str, bytes], origin: Files, split_bytes: int | None, **options: Any) -> dict[str, Any]:
        folder = tmp_path / str(len(stores))
        store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
        stores.append(store)
        source = Source(ORDERS, origin, SourceLocation("flows/orders.py", 3), **options)
        ods = Ingesting(store, folder / "shop", source)
        if split_bytes is not None:
            ods.choose_runner = PicklingRunner(split_bytes=split_bytes)
        for name, contents in files.items():
            ods.write(name, contents)
        return describe(ods)

    yield read
    for store in stores:
        store.close()


def describe(ods: Ingesting) -> dict[str, Any]:
    """Ingest, and return what users see of it."""
    try:
        ods.run()
    except RunnelError as error:
        return {"error": (error.code, error.what, error.at, error.fix)}
    state = ods.store.state()
    schema = table_metadata.load_metadata(ods.store, state[ORDERS].location).schema()
    has_quarantine = any(name.layer == "quarantine" for name in state)
    aside = [row[:3] for row in rows_of(ods.store, "quarantine.ods_orders")] if has_quarantine else []
    done = ods.done
    unread_reasons = tuple(reason.replace(str(ods.root), "") for reason in done.unread_reasons)
    return {
        "columns": str(schema),
        "rows": sorted(map(repr, ods.rows)),
        "quarantined": sorted(repr(row).replace(str(ods.root), "") for row in aside),
        "counts": (done.rows, done.dropped, unread_reasons, done.warnings, done.new_columns),
        "files": [(file.path, bool(file.files), file.is_incomplete) for file in done.processed_files],
    }


def csv_origin(*options: tuple[str, str], schema: str | None = "id long, name string, v double") -> Files:
    columns = parse_columns(schema) if schema else None
    return Files("data/**/*.csv", "csv", columns, options=(*ONE_LINE, *options), infers_schema=schema is None)


def make_csv(dice: random.Random, *, header: str = "id,name,v", skip: int = 0, end: str = "\n") -> bytes:
    """Return a CSV file with all that may happen to it but values with line ends."""
    lines = [f"title {number}" for number in range(skip)]
    lines += [header] if header else []
    for number in range(dice.randrange(15)):
        fields = [str(number), dice.choice(["a", "é", '"q,""r"', "", "text of a row"]), dice.choice(["1.5", "", "7"])]
        fault = dice.randrange(20)
        if fault == 0:
            fields[0] = "x"
        elif fault == 1:
            fields = fields[:2]
        elif fault == 2:
            fields.append("more")
        elif fault == 3:
            fields[1] = '"a"b'
        elif fault == 4:
            lines.append("")
        lines.append(",".join(fields))
    text = end.join(lines) + dice.choice(["", end, end * 3])
    return dice.choice([b"", b"\xef\xbb\xbf"]) * (not skip) + text.encode()


CSV_KINDS: dict[str, tuple[tuple[tuple[str, str], ...], dict[str, Any]]] = {
    "plain": ((), {}),
    "carriage returns": ((), {"end": "\r\n"}),
    "no header": ((("header", "false"),), {"header": ""}),
    "skipped lines": ((("skip", "2"),), {"skip": 2}),
    "skipped lines, no header": ((("skip", "1"), ("header", "false")), {"header": "", "skip": 1}),
    "semicolons": ((("delimiter", ","), ("null", "a"), ("trim", "true")), {}),
}


@pytest.mark.parametrize(("options", "shape"), CSV_KINDS.values(), ids=CSV_KINDS)
def test_csv_in_splits_is_read_as_whole_files_are(reading: Reading, options: Any, shape: dict[str, Any]) -> None:
    dice = random.Random(str(shape))
    files = {f"{number}.csv": make_csv(dice, **shape) for number in range(3)}
    files["bad byte.csv"] = make_csv(dice, **shape) + b"\n5,\xff,1\n6,b,2\n"
    whole = reading(files, csv_origin(*options), None, on_bad="quarantine")
    assert whole["rows"]
    for split_bytes in (11, 40):
        assert reading(files, csv_origin(*options), split_bytes, on_bad="quarantine") == whole


ODD_FILES = {
    "bad rows": b"id,name,v\n1,a,1\nx,b,2\n3,c\n",
    "bad byte": b"id,name,v\n1,a,1\n2,\xff,1\n",
    "column missing": b"id,name\n1,a\n2,b\n",
    "another delimiter": b"id;name;v\n1;a;1\n2;b;3\n",
    "mixed line ends": b"id,name,v\r\n1,a,1\n2,b,1\r\n",
    "carriage returns": b"id,name,v\r1,a,1\r2,b,1\r",
    "blank": b"\n" * 30,
    "only a header": b"id,name,v\n",
    "a header without line end": b"id,name,v",
    "a line end in a name": b'id,"na\nme",v\n1,a,1\n2,b,3\n',
    "empty lines": b"id,name,v\n" + b"1,a,2\n" * 5 + b"\n" * 20 + b"x,b,2",
}


@pytest.mark.parametrize("contents", ODD_FILES.values(), ids=ODD_FILES)
def test_messages_about_splits_of_csv_are_those_of_whole_files(reading: Reading, contents: bytes) -> None:
    origin = csv_origin()
    assert reading({"a.csv": contents}, origin, 7) == reading({"a.csv": contents}, origin, None)


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8", "gbk", "utf-16"])
def test_encodings(reading: Reading, encoding: str) -> None:
    name = "中文" if encoding == "gbk" else "Köln"
    lines = [f"{number},{name} {number},{number}.5" for number in range(20)]
    files = {"a.csv": "\n".join(["id,name,v", *lines, "x,b,1"]).encode(encoding)}
    origin = csv_origin(("encoding", encoding))
    whole = reading(files, origin, None, on_bad="quarantine")
    assert len(whole["rows"]) == 20
    assert reading(files, origin, 9, on_bad="quarantine") == whole


def test_types_are_inferred_from_all_splits(reading: Reading) -> None:
    lines = [f"{number},,{number % 3}" for number in range(30)] + ["31,,0.5"]
    files = {"a.csv": "\n".join(["id,name,v", *lines]).encode()}
    whole = reading(files, csv_origin(schema=None), None)
    assert "double" in whole["columns"]
    assert reading(files, csv_origin(schema=None), 16) == whole


VALUES_WITH_LINE_ENDS = {
    "in a value": (b'id,name,v\n1,a,1\n2,"b\nc",2\n3,d,3\n', 3),
    "in the last value": (b'id,name,v\n1,a,1\n2,b,"1\n"', 3),
    "in a rejected row": (b'id,name,v\n1,a,1\n2,"b\r\nc",2,4\n3,d,3\n', 3),
    "a quote is not closed": (b'id,name,v\n1,a,1\n2,"b,2\n' + b"3,d,3\n" * 10, 3),
}  # fmt: skip


@pytest.mark.parametrize(("contents", "line"), VALUES_WITH_LINE_ENDS.values(), ids=VALUES_WITH_LINE_ENDS)
@pytest.mark.parametrize("split_bytes", [None, 7, 13, 29], ids=lambda size: f"splits of {size}" if size else "whole")
def test_a_value_with_a_line_end_breaks_the_promise(
    reading: Reading, contents: bytes, line: int, split_bytes: int | None
) -> None:
    stopped = reading({"a.csv": contents}, csv_origin(schema="id long"), split_bytes)
    code, what, at, fix = stopped["error"]
    assert what == f"data/a.csv, line {line}: a value contains a line end, though multiline=False says that none does"
    assert (code, at) == ("SOURCE_CSV_MULTILINE", f"data/a.csv:{line}")
    assert fix == "take multiline=False out of rn.files: the file is then read as a whole"
    files = {"a.csv": contents, "b.csv": b"id,name,v\n7,g,7\n"}
    skipped = reading(files, csv_origin(schema="id long"), split_bytes, on_bad="quarantine")
    assert skipped["rows"] == ["(7, 'g', 7)"]
    assert skipped["counts"][2] == (what,)


def test_json_lines_in_splits_are_read_as_whole_files_are(reading: Reading) -> None:
    dice = random.Random(5)

    def make_line(number: int) -> str:
        return dice.choice([
            json.dumps({"id": number, "tags": ["a"] * dice.randrange(3)}),
            json.dumps({"id": number, "deep": {"x": dice.choice([1, 2.5, None, {}])}}),
            json.dumps({"id": "x", "name": "é\n"}, ensure_ascii=False),
            "",
            "{broken",
            "[1]",
        ])  # fmt: skip

    files = {}
    for number in range(5):
        end = dice.choice(["\n", "\r\n"])
        lines = ['{"id": 0}', *(make_line(line) for line in range(dice.randrange(20)))]
        text = end.join(lines) + dice.choice(["", end, end * 4])
        files[f"{number}.jsonl"] = dice.choice([b"", b"\xef\xbb\xbf"]) + text.encode()
    files["bad byte.jsonl"] = b'{"id": 1}\n{"id": 2}\n{"id": "\xff"}\n{"id": 4}\n'
    origin = Files("data/*.jsonl", "jsonl", parse_columns("id long"))
    whole = reading(files, origin, None, on_bad="quarantine")
    assert whole["rows"]
    assert any(re.search(r"line \d\d", row) for row in whole["quarantined"])
    for split_bytes in (17, 50):
        assert reading(files, origin, split_bytes, on_bad="quarantine") == whole


def test_columns_of_json_lines_are_in_the_order_of_the_files(reading: Reading) -> None:
    names = [f"c{number * 7 % 12}" for number in range(12)]
    files = {
        f"{number:02}.jsonl": (json.dumps({"id": number, name: {"y": 1, "x": 2}}) + "\n").encode() * 30
        for number, name in enumerate(names)
    }
    files["00.jsonl"] += b'{"id": 1, "late b": 1, "late a": 1}\n'  # after the first lines of its file: by name
    origin = Files("data/*.jsonl", "jsonl", parse_columns("id long"))
    whole = reading(files, origin, None)
    fields = re.findall(r"  \d+: (\S.*?): optional (\S+)", whole["columns"])
    assert [name for name, _ in fields] == ["id", *names, "late a", "late b"]
    assert "optional struct<" in whole["columns"]
    assert not re.search(r"\d: x: optional long, \d+: y:", whole["columns"])
    assert reading(files, origin, 700) == whole


@pytest.mark.parametrize("contents", [
    b'{"id": 1}\n{"id": "x"}\n{"id": 3}', b'[{"id": 1},\n{"id": 2}]', b"\n" * 20, b'{"id": 1}\n{broken\n',
], ids=["bad value", "array", "blank", "broken"])  # fmt: skip
def test_messages_about_splits_of_json_lines(reading: Reading, contents: bytes) -> None:
    origin = Files("data/*.jsonl", "jsonl", parse_columns("id long"))
    assert reading({"a.jsonl": contents}, origin, 7) == reading({"a.jsonl": contents}, origin, None)


def make_parquet(path: Path, table: pa.Table, rows: int, cut: int = 0) -> bytes:
    pq.write_table(table, path, row_group_size=rows)
    contents = path.read_bytes()
    return contents[:200] + b"\x00" * cut + contents[200 + cut :]


def test_parquet_by_row_groups_is_read_as_whole_files_are(reading: Reading, tmp_path: Path) -> None:
    dice = random.Random(3)
    files = {}
    for number in range(4):
        count = dice.randrange(200, 400)
        ids = [str(value) if dice.randrange(50) else "x" for value in range(count)]
        table = pa.table({"id": ids, "v": [float(value) for value in range(count)]})
        files[f"day=2026-01-0{number + 1}/{number}.parquet"] = make_parquet(tmp_path / "one", table, 37)
    files["day=2026-01-01/damaged.parquet"] = make_parquet(tmp_path / "one", table, 37, cut=20)
    files["day=2026-01-01/cut.parquet"] = make_parquet(tmp_path / "one", table, 37)[:-20]
    taken = pa.table({"id": ["1", "2"], "file_row_number": [5.0, 6.0]})
    files["day=2026-01-01/taken.parquet"] = make_parquet(tmp_path / "one", taken, 1)
    files["day=2026-01-01/empty.parquet"] = make_parquet(tmp_path / "one", table.slice(0, 0), 1)
    origin = Files("data/**/*.parquet", "parquet", parse_columns("id long, v double"))
    origin = replace(origin, options=(("missing_columns", "null"),))
    whole = reading(files, origin, None, on_bad="quarantine")
    assert len(whole["rows"]) > 800
    assert len(whole["counts"][2]) == 2  # two files can't be read
    for split_bytes in (900, 2500):
        assert reading(files, origin, split_bytes, on_bad="quarantine") == whole


SPLITTABLE = {
    "Parquet": ("a.parquet", Files("*", "parquet"), True),
    "JSON lines": ("a.jsonl", Files("*", "jsonl"), True),
    "compressed": ("a.jsonl.gz", Files("*", "jsonl"), False),
    "JSON": ("a.json", Files("*", "json"), False),
    "CSV": ("a.csv", Files("*", "csv"), False),
    "CSV of lines": ("a.csv", csv_origin(), True),
    "compressed CSV": ("a.csv.zst", csv_origin(), False),
    "CSV in cp1252": ("a.csv", csv_origin(("encoding", "cp1252")), True),
    "CSV in UTF-16": ("a.csv", csv_origin(("encoding", "utf-16")), False),
    "CSV with comments": ("a.csv", csv_origin(("comment", "#")), False),
    "an unknown encoding": ("a.csv", csv_origin(("encoding", "utf-9")), False),
}


@pytest.mark.parametrize(("name", "origin", "expected"), SPLITTABLE.values(), ids=SPLITTABLE)
def test_which_files_are_divided(name: str, origin: Files, expected: bool) -> None:
    file = LocalFile(name, f"/{name}", 1, 0.0)
    assert is_splittable(file, build_files_request(ORDERS, origin, [file])) is expected
