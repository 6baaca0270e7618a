"""Bad input: each is reported with its file and its line, and nothing is half loaded."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.load.load import LoadOptions, load_files
from runnel.errors import Mistake
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.conftest import Loading, Writing
from tests.lake.factories import read

GZIP = gzip.compress(b"id,v\n" + b"".join(b"%d,x%d\n" % (n, n * 7919) for n in range(5000)))
SCHEMA = {"schema": "id long not null, v int"}

FILES = {
    "too few columns": (
        "a.csv",
        "id,v,w,x\n1,2,3,4\n3\n",
        {},
        "LOAD_BAD_ROWS",
        "a.csv, line 3: expected 4 columns, found 1",
    ),
    "too many columns": ("a.csv", "id,v\n1,2,3,4\n", {}, "LOAD_BAD_ROWS", "a.csv, line 2: expected 2 columns, found 4"),
    "bad number": ("a.csv", "id,v\n1,2\n3,x\n", SCHEMA, "LOAD_BAD_ROWS", "a.csv, line 3, column `v`: 'x': not an int"),
    "after a quoted line break": ("a.csv", 'id,v,w\n1,2,"a\nb"\n3,x,c\n', SCHEMA, "LOAD_BAD_ROWS", "a.csv, line 4"),
    "a fraction for an int": ("a.csv", "id,v\n1,2.5\n", SCHEMA, "LOAD_BAD_ROWS", "'2.5': not an int"),
    "null where required": ("a.csv", "id,v\n,2\n", SCHEMA, "LOAD_BAD_ROWS", "column `id`: null, but the column is req"),
    "too precise": ("a.csv", "d\n1.005\n", {"schema": "d decimal(12,2)"}, "LOAD_BAD_ROWS", "'1.005': not a decimal"),
    "wrong encoding": (
        "a.csv",
        b"id,v\n1,2\n2,caf\xe9\n",
        {},
        "LOAD_ENCODING",
        "line 3: byte 0xe9 at position 14 is not",
    ),
    "not the named encoding": (
        "a.csv",
        b"id,v\n1,\xff\xfe\xfd\n",
        {"csv": CsvOptions(encoding="gbk")},
        "LOAD_ENCODING",
        "line 2: byte 0xff",
    ),
    "no such encoding": ("a.csv", "id\n1\n", {"csv": CsvOptions(encoding="utf-99")}, "LOAD_ENCODING", "utf-99"),
    "open quote": ("a.csv", 'id,v\n1,"a\n2,b\n', {}, "LOAD_BAD_ROWS", "a.csv, line 2: a quote is not closed"),
    "mixed line endings": ("a.csv", "id,v\r\n1,2\r\n3,4\n5,6\r\n", {}, "LOAD_CSV", "a.csv, line 3"),
    "empty": ("a.csv", "", {}, "LOAD_FILE_EMPTY", "a.csv is empty"),
    "empty inside gzip": ("a.csv.gz", "", {}, "LOAD_FILE_EMPTY", "a.csv.gz is empty"),
    "columns of one name": ("a.csv", "id,ID\n1,2\n", {}, "LOAD_COLUMN_NAME", "`id` and `ID`"),
    "a column without a name": ("a.csv", "id,\n1,2\n", {}, "LOAD_COLUMN_NAME", "its column 2 has no name"),
    "a control character": ("a.csv", "id,a\x07b\n1,2\n", {}, "LOAD_COLUMN_NAME", "can't be printed"),
    "two quotes": ("a.csv", "id\n1\n", {"csv": CsvOptions(quote="||")}, "LOAD_CSV_OPTION", "one character"),
    "JSON cut off": ("a.jsonl", '{"id": 1}\n\n{"id":\n', {}, "LOAD_BAD_ROWS", "a.jsonl, line 3: it is not JSON"),
    "JSON that is no object": ("a.jsonl", '{"id": 1}\n5\n', {}, "LOAD_BAD_ROWS", "a.jsonl, line 2: it is no object"),
    "JSON in another encoding": ("a.jsonl", b'{"id": "\xe9"}\n{"id": 1}\n', {}, "LOAD_ENCODING", "line 1: byte 0xe9"),
    "a JSON array": ("a.jsonl", '[{"id": 1}]', {}, "LOAD_JSON_ARRAY", "--format json"),
    "bad number in JSON": ("a.jsonl", '{"id": 1, "v": "x"}\n', SCHEMA, "LOAD_BAD_ROWS", "line 1, column `v`: 'x'"),
    "beyond a long, nested": (
        "a.jsonl",
        '{"o": {"n": 18446744073709551615}}\n',
        {},
        "LOAD_BAD_ROWS",
        "line 1, column `o`",
    ),
    "no array for a number": ("a.jsonl", '{"id": 1, "v": [1]}\n', SCHEMA, "LOAD_BAD_ROWS", "line 1, column `v`: '[1]'"),
    "not Parquet": ("a.parquet", "id,v\n1,2\n", {}, "LOAD_NOT_PARQUET", "a.parquet is not"),
    "unknown ending": ("a.data", "id\n1\n", {}, "LOAD_FORMAT", "--format"),
    "unknown format": ("a.csv", "id\n1\n", {"format": "xls"}, "LOAD_FORMAT", "xls"),
    "array in CSV": ("a.csv", "id\n1\n", {"schema": "id array<int>"}, "LOAD_TYPE", "is text, which can't become array"),
    "partition by nothing": ("a.csv", "id\n1\n", {"partition": ["idd"]}, "LOAD_PARTITION", "`id`"),
    "partition by what can't be": ("a.csv", "id\n1\n", {"partition": ["month(id)"]}, "LOAD_PARTITION", "long"),
    "partition twice": ("a.csv", "id\n1\n", {"partition": ["id", "bucket(2, id)"]}, "LOAD_PARTITION", "twice"),
    "partition by a double": ("a.csv", "id\n1.5\n", {"partition": ["id"]}, "LOAD_PARTITION", "decimal"),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open a lake that stays empty, since nothing is half loaded."""
    folder = tmp_path_factory.mktemp("untouched")
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    yield store
    store.close()


def refused(store: Store, *patterns: str, **options: Any) -> Mistake:
    before = store.commit()
    with pytest.raises(Mistake) as caught:
        load_files(store, TableName.parse("ods.orders"), patterns, LoadOptions(**options))
    assert (store.commit(), store.state()) == (before, {})
    return caught.value


@pytest.mark.parametrize(("name", "contents", "options", "code", "hint"), FILES.values(), ids=FILES)
def test_bad_files(untouched: Store, data: Writing, name, contents, options, code, hint):
    error = refused(untouched, data(name, contents), **options)
    assert error.code == code
    assert hint in str(error)


DAMAGED = {"cut off": GZIP[:-20], "changed": GZIP[:1000] + b"\x55\x55" + GZIP[1002:], "no gzip": b"id,v\n1,2\n"}


@pytest.mark.parametrize("contents", DAMAGED.values(), ids=DAMAGED)
def test_damaged_gzip(untouched: Store, data: Writing, contents):
    Path("a.csv.gz").write_bytes(contents)
    error = refused(untouched, "a.csv.gz")
    assert error.code == "LOAD_GZIP"
    assert "a.csv.gz is not a complete gzip file" in error.what


def test_damaged_parquet(untouched: Store, data: Writing):
    pq.write_table(pa.table({"v": [f"{n:099d}" for n in range(20_000)]}), "a.parquet", compression="zstd")
    whole = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(whole[:1000] + bytes(500) + whole[1500:])
    assert refused(untouched, "a.parquet").code == "LOAD_UNREADABLE"


PATTERNS = {
    "no match": (["orders*.tsv"], "LOAD_NO_FILE", "no file matches 'orders*.tsv'; the folder . has `orders.csv`"),
    "no such file": (["order.csv"], "LOAD_NO_FILE", "has `orders.csv`"),
    "no such folder": (["nowhere/deep/*.csv"], "LOAD_NO_FILE", "the folder . has"),
    "a folder": (["sub"], "LOAD_DIRECTORY", "'sub/*.csv'"),
    "hidden files": (["sub/*"], "LOAD_NO_FILE", "no file matches"),
    "mixed formats": (["orders.csv", "o.jsonl"], "LOAD_FORMATS_MIXED", "jsonl"),
    "nothing named": ([], "LOAD_NO_FILE", "no file was named"),
    "NUL": (["a\0b"], "LOAD_NO_FILE", "not a path"),
}


@pytest.mark.parametrize(("patterns", "code", "hint"), PATTERNS.values(), ids=PATTERNS)
def test_patterns(untouched: Store, data: Writing, patterns, code, hint):
    data("orders.csv", "id\n1\n")
    data("o.jsonl", '{"id": 1}\n')
    data("sub/.hidden.csv", "id\n1\n")
    error = refused(untouched, *patterns)
    assert error.code == code
    assert hint in str(error)


FOLDERS = {
    "gzipped CSV": (["a.csv.gz", "b.csv.gz", "c.txt"], "'in/*.csv.gz', or 'in/**/*.csv.gz' with subfolders"),
    "Parquet, with other files": (["a.parquet", "_SUCCESS", "README.md"], "'in/*.parquet', or 'in/**/*.parquet' with"),
    "in subfolders only": (["day=1/a.jsonl", "day=2/b.jsonl"], "'in/**/*.jsonl'"),
    "nothing to load": (["README.md"], "'in/*.csv', or 'in/**/*.csv' with subfolders"),
}


@pytest.mark.parametrize(("names", "globs"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_answered_with_the_ending_of_its_files(untouched: Store, data: Writing, names, globs):
    for name in names:
        data(f"in/{name}", "id\n1\n")
    error = refused(untouched, "in/")
    assert (error.code, error.what) == ("LOAD_DIRECTORY", "in/ is a folder, not a file")
    assert (error.fix or "").startswith(f"name the files in it: {globs}")


def test_a_glob_goes_down_and_takes_each_file_once(store: Store, data: Writing, loading: Loading):
    for name in ("a.csv", "x/b.csv", "x/y/c.csv", "x/.d.csv"):
        data(name, f"id\n{ord(name[-5])}\n")
    assert loading("**/*.csv", "x/b.csv", "./a.csv").files == 3
    assert read(store, "ods.orders") == [(97,), (98,), (99,)]


def test_a_long_report_is_cut_and_counts_all(untouched: Store, data: Writing):
    data("b.csv", "id,v\n" + "1,x\n" * 30)
    data("a.csv", "id,v\n1,2\n" + "1\n" * 5 + "1,y\n")
    lines = refused(untouched, "*.csv", **SCHEMA).what.splitlines()
    assert lines[0] == "36 rows of a.csv and 1 more can't be loaded; nothing was loaded"
    assert lines[1] == "    a.csv, line 3: expected 2 columns, found 1"
    assert lines[6] == "    a.csv, line 8, column `v`: 'y': not an int"
    assert lines[7] == "    b.csv, line 2, column `v`: 'x': not an int"
    assert lines[-1] == "    ... and 16 more rows"


def test_a_long_report_names_each_file(untouched: Store, data: Writing):
    data("a.csv", "id,v\n" + "1,x\n" * 300)
    data("b.csv", "id,v\n1\n")
    data("c.csv", "id,v\n1,y\n")
    lines = refused(untouched, "*.csv", **SCHEMA).what.splitlines()
    assert [line.split(",")[0].strip() for line in lines[1:-1]] == ["a.csv"] * 18 + ["b.csv", "c.csv"]
    assert lines[-1] == "    ... and 282 more rows"


DROPPED = {
    "csv": ("a.csv", b"id,v\n1,2\n3\n4,x\n5,6\n,7\n8,\xff\n", [(1, 2), (5, 6)], 4),
    "jsonl": ("a.jsonl", '{"id": 1, "v": 2}\n{"id"\n7\n{"id": 3, "v": "x"}\n{"v": 1}\n', [(1, 2)], 4),
}


@pytest.mark.parametrize(("name", "contents", "rows", "dropped"), DROPPED.values(), ids=DROPPED)
def test_bad_rows_can_be_dropped(store: Store, data: Writing, loading: Loading, name, contents, rows, dropped):
    loaded = loading(data(name, contents), on_bad="drop", **SCHEMA)
    assert (loaded.rows, loaded.dropped) == (len(rows), dropped)
    assert read(store, "ods.orders") == rows


def test_a_row_that_is_bad_in_an_ignored_column_is_dropped_alike(store: Store, data: Writing, loading: Loading):
    loading(data("a.csv", "id\n1\n"))
    loaded = loading(data("b.csv", b"id,v\n2,\xff\n3,x\n"), on_bad="drop", on_new_column="ignore")
    assert (loaded.rows, loaded.dropped) == (1, 1)
    assert read(store, "ods.orders") == [(1,), (3,)]
