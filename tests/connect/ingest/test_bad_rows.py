"""Ingesting what is wrong: bad rows by each policy, columns, files that change, are empty or can't be read."""

import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.ingest import failpoints
from runnel.errors import Mistake, RunnelError
from runnel.failpoint import InjectedFault
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.parquet_writer import write_rows
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.upkeep.compact.compact import compact
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.lake.factories import read as rows_of

GOOD = "id,name\n1,a\n"
BAD = 'id,name\n2,b\nx,c\n3,"d\ne"\n4,f,g\ny,"multi\nline"\n'


def aside(ods: Ingesting) -> list[tuple[Any, ...]]:
    return [row[:4] for row in rows_of(ods.store, "quarantine.ods_orders")]


def failed(ods: Ingesting) -> RunnelError:
    before = ods.content
    with pytest.raises(RunnelError) as raised:
        ods.run()
    assert ods.content == before
    return raised.value


def test_bad_rows_stop(ods: Ingesting):
    ods.write("a.csv", GOOD)
    ods.write("b.csv", BAD)
    error = failed(ods)
    assert (error.code, error.exit_code, error.at) == ("SOURCE_BAD_ROWS", 1, "data/b.csv:3")
    assert "3 rows of data/a.csv and 1 more can't be loaded" in error.what
    assert "data/b.csv, line 3, column `id`: 'x': not a long" in error.what
    assert 'on_bad="quarantine"' in error.fix
    assert "--" not in error.fix


def test_each_file_with_bad_rows_is_named(ods: Ingesting):
    for name in ("a.csv", "b.csv", "c.csv"):
        ods.write(name, "id,name\n" + "x,y\n" * 30)
    lines = failed(ods).what.splitlines()
    assert [line.split(",")[0].strip() for line in lines[1:-1]] == (
        ["data/a.csv"] * 7 + ["data/b.csv"] * 7 + ["data/c.csv"] * 6
    )
    assert lines[-1] == "    ... and 70 more rows"


def test_bad_rows_are_dropped(ods: Ingesting):
    ods.declare("v1", on_bad="drop")
    ods.write("a.csv", GOOD)
    ods.write("b.csv", BAD)
    ods.run()
    assert (ods.done.rows, ods.done.dropped, ods.done.quarantine) == (3, 3, None)
    assert ods.rows == [(1, "a"), (2, "b"), (3, "d\ne")]


def test_bad_rows_go_to_quarantine_and_are_replaced_with_their_file(ods: Ingesting):
    ods.declare("v1", on_bad="quarantine")
    ods.write("a.csv", GOOD + "?,z\n")
    ods.write("b.csv", BAD)
    ods.run()
    assert ods.rows == [(1, "a"), (2, "b"), (3, "d\ne")]
    assert ods.done.dropped == 4
    found = {raw: (reason, file, run) for raw, reason, file, run in aside(ods)}
    assert set(found) == {"?,z", "x,c", "4,f,g", 'y,"multi\nline"'}
    assert found["x,c"] == ("data/b.csv, line 3, column `id`: 'x': not a long", "data/b.csv", "r1")
    assert "expected 2 columns, found 3" in found["4,f,g"][0]
    state = ods.store.state()
    version = next(version for name, version in state.items() if name.layer == "quarantine")
    assert table_metadata.load_metadata(ods.store, version.location).properties["runnel.quarantine_of"] == "ods.orders"
    ods.write("b.csv", "id,name\n2,b\n!,c\n")
    ods.run()
    assert [row[0] for row in aside(ods)] == ["!,c", "?,z"]
    ods.write("b.csv", "id,name\n2,b\n")
    ods.run()
    assert [row[0] for row in aside(ods)] == ["?,z"]
    ods.write("c.csv", "id,name\n5,b\n")
    ods.run()
    assert ods.done.quarantine is None


def test_a_row_that_is_wrong_twice_is_set_aside_once(ods: Ingesting):
    ods.declare("v1", schema="id long not null, name date", on_bad="quarantine")
    ods.write("a.csv", "id,name\n1,2026-01-02\n,x\n")
    ods.run()
    [(raw, reason, _, _)] = aside(ods)
    assert raw == ",x"
    assert reason.count("line 3") == 2


def test_json_lines_in_quarantine(ods: Ingesting):
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob="data/*.jsonl", format="jsonl"))
    ods.declare("v1", schema="id long not null, name string", on_bad="quarantine")
    ods.write("a.jsonl", '{"id": 1, "name": "a"}\n{"name": "b"}\nnot json\n{"id": "x"}\n{"id": 2}\n')
    ods.run()
    assert ods.rows == [(1, "a"), (2, None)]
    assert [row[0] for row in aside(ods)] == ["not json", '{"id": "x"}', '{"name": "b"}']


def test_fields_that_no_object_has_are_null(ods: Ingesting):
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob="data/*.jsonl", format="jsonl"))
    ods.declare("v1", schema="id long, name string, tags array<string>")
    ods.write("a.jsonl", '{"id": 1}\n')
    ods.run()
    ods.write("b.jsonl", '{"id": 2, "tags": ["x"]}\n')
    ods.run()
    assert ods.rows == [(1, None, None), (2, None, ["x"])]


def test_parquet_in_quarantine(ods: Ingesting):
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob="data/*.parquet", format="parquet"))
    ods.declare("v1", schema="id long, name string", on_bad="quarantine")
    pq.write_table(pa.table({"id": ["1", "x"], "name": ["a", "b"]}), ods.root / "data/a.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "name": ["c"]}), ods.root / "data/b.parquet")
    error = failed(ods)
    assert error.code == "SOURCE_TYPE"  # text here, numbers there
    (ods.root / "data/b.parquet").unlink()
    ods.run()
    assert ods.rows == [(1, "a")]
    assert [json.loads(row[0]) for row in aside(ods)] == [{"id": "x", "name": "b"}]


def test_parquet_without_a_schema(ods: Ingesting):
    ods.source = replace(
        ods.source, origin=replace(ods.source.origin, glob="data/*.parquet", format="parquet", schema=None)
    )
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), ods.root / "data/a.parquet")
    ods.run()
    first = ods.content
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "more": ["x"]}), ods.root / "data/b.parquet")
    ods.run()
    assert ods.rows == [(1, None), (2, "x")]
    assert ods.done.new_columns == ("more",)
    ods.declare("v1", removed="delete")
    (ods.root / "data/b.parquet").unlink()
    ods.run()
    assert ods.rows == [(1, None)]
    assert ods.content != first  # the same rows, but other columns


NEW = {
    "add": [(1, "a", None), (2, "b", 7)],
    "ignore": [(1, "a"), (2, "b")],
}


@pytest.mark.parametrize(("policy", "rows"), NEW.items(), ids=NEW)
def test_new_columns(ods: Ingesting, policy: str, rows: list):
    ods.declare("v1", on_new_column=policy)
    ods.write("a.csv", GOOD)
    ods.run()
    ods.write("b.csv", "id,extra,name\n2,7,b\n")
    ods.run()
    assert ods.rows == rows
    assert ods.done.new_columns == (("extra",) if policy == "add" else ())


def test_a_new_column_stops(ods: Ingesting):
    ods.declare("v1", on_new_column="stop")
    ods.write("a.csv", GOOD)
    ods.write("b.csv", "id,name,nam\n2,b,7\n")
    error = failed(ods)
    assert (error.code, error.at) == ("SOURCE_NEW_COLUMN", "data/b.csv:1")
    assert "data/b.csv has `nam`, which the source does not declare; close: `name`" in error.what


def test_a_column_is_missing_in_one_of_the_files(ods: Ingesting):
    ods.write("a.csv", GOOD)
    ods.write("b.csv", "id,nmae\n2,b\n")
    error = failed(ods)
    assert (error.code, error.exit_code, error.at) == ("SOURCE_COLUMN_MISSING", 1, "data/b.csv:1")
    assert error.what == "data/b.csv lacks `name`; close: `nmae`"


def change(ods: Ingesting):
    ods.write("a.csv", "id,name\n1,a\n2,b\n")


def change_within_a_tick(ods: Ingesting):
    found = ods.root / "data/a.csv"
    before = found.stat()
    found.write_text("id,name\n9,z\n")
    os.utime(found, ns=(before.st_atime_ns, before.st_mtime_ns))


def vanish(ods: Ingesting):
    (ods.root / "data/a.csv").unlink()


@pytest.mark.parametrize("happens", [change, change_within_a_tick, vanish])
def test_a_file_changes_while_it_is_read(
    ods: Ingesting, happens: Callable[[Ingesting], None], monkeypatch: pytest.MonkeyPatch
):
    ods.write("b.csv", "id,name\n5,e\n")
    ods.run()
    ods.write("a.csv", GOOD)
    ahead_ns = time.time_ns() + 3600 * 10**9
    os.utime(ods.root / "data/a.csv", ns=(ahead_ns, ahead_ns))  # a clock that has not moved on since it was written
    reach = failpoints.reach
    monkeypatch.setattr(failpoints, "reach", lambda point: happens(ods) if point == failpoints.READ else reach(point))
    before = ods.content
    ods.run()
    assert ods.done.unfinished == ("data/a.csv",)
    assert (ods.content, ods.rows) == (before, [(5, "e")])
    monkeypatch.undo()
    ods.run()
    assert (5, "e") in ods.rows


def test_a_file_that_changes_while_it_is_read_does_not_hold_up_the_others(
    ods: Ingesting, monkeypatch: pytest.MonkeyPatch
):
    for name, row in (("a.csv", "1,a"), ("b.csv", "2,b")):
        ods.write(name, f"id,name,extra\n{row},9\n")
    reach = failpoints.reach
    monkeypatch.setattr(failpoints, "reach", lambda point: change(ods) if point == failpoints.READ else reach(point))
    with pytest.raises(RunnelError, match="changed while it was read"):
        (ods.root / "data/b.csv").rename(ods.root / "b")
        ods.run()
    (ods.root / "b").rename(ods.root / "data/b.csv")
    ods.run()
    assert (ods.done.unfinished, ods.rows) == (("data/a.csv",), [(2, "b", 9)])
    monkeypatch.undo()
    ods.run()
    assert [row[:2] for row in ods.rows] == [(1, "a"), (2, "b"), (2, "b")]


def test_a_file_that_becomes_bad_while_it_is_read_is_left_for_the_next_run(
    ods: Ingesting, monkeypatch: pytest.MonkeyPatch
):
    ods.write("a.csv", "id,name\n1,a\n")
    ods.write("b.csv", "id,name\n2,b\n")
    found = ods.look
    monkeypatch.setattr(ods, "look", lambda: (found(), ods.write("a.csv", "id,name\n1,a\nx"))[0])
    ods.run()
    assert (ods.done.unfinished, ods.rows) == (("data/a.csv",), [(2, "b")])
    monkeypatch.setattr(ods, "look", lambda: (ods.write("a.csv", GOOD), found(), (ods.root / "data/a.csv").unlink())[1])
    ods.run()
    assert (ods.done.unfinished, ods.rows) == (("data/a.csv",), [(2, "b")])


@pytest.mark.parametrize("point", [failpoints.READ, failpoints.STAGED])
def test_a_crash_leaves_nothing_visible(ods: Ingesting, point: str, monkeypatch: pytest.MonkeyPatch):
    ods.write("a.csv", GOOD)
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", f"{point}:error")
    with pytest.raises(InjectedFault):
        ods.run()
    assert ods.content is None
    ods.run()
    assert ods.rows == [(1, "a")]


EMPTY = {"no bytes": "", "a blank line": "\n", "only a header": "id,name\n", "zipped": gzip.compress(b"")}


@pytest.mark.parametrize("contents", EMPTY.values(), ids=EMPTY)
def test_an_empty_file_has_no_rows(ods: Ingesting, contents: str | bytes):
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob="data/*"))
    name = "a.csv.gz" if isinstance(contents, bytes) else "a.csv"
    ods.write(name, contents)
    ods.run()
    assert ods.rows == []
    assert ods.run().is_empty
    ods.write(name, gzip.compress(GOOD.encode()) if isinstance(contents, bytes) else GOOD)
    ods.run()
    assert ods.rows == [(1, "a")]
    ods.write(name, contents)
    ods.run()
    assert ods.rows == []


UNREADABLE = {
    "latin-1": ("a.csv", "id,name\n1,caf\xe9\n".encode("latin-1"), "SOURCE_ENCODING"),
    "damaged gzip": ("a.csv.gz", gzip.compress(GOOD.encode() * 2000)[:60], "SOURCE_GZIP"),
    "no gzip": ("a.csv.gz", b"id,name\n", "SOURCE_GZIP"),
    "mixed line endings": ("a.csv", b"id,name\r\n1,a\n2,b\r\n", "SOURCE_CSV"),
}


@pytest.mark.parametrize(("name", "contents", "code"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read(ods: Ingesting, name: str, contents: bytes, code: str):
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob="data/*"))
    ods.write(name, contents)
    error = failed(ods)
    assert (error.code, error.exit_code) == (code, 1)
    assert f"data/{name}" in error.what
    assert "--" not in (error.fix or "")


def test_an_encoding_that_is_declared(ods: Ingesting):
    origin = replace(ods.source.origin, options=(("encoding", "latin-1"), ("delimiter", ";"), ("header", "false")))
    ods.source = replace(ods.source, origin=origin)
    ods.write("a.csv", "1;caf\xe9\n".encode("latin-1"))
    ods.run()
    assert ods.rows == [(1, "café")]


@pytest.mark.parametrize("changes", [{"partition": ("dya",)}, {"key": ("di",)}])
def test_a_wrong_declaration_is_a_mistake(ods: Ingesting, changes: dict[str, Any]):
    ods.source = replace(ods.source, **changes)
    ods.write("a.csv", GOOD)
    error = failed(ods)
    assert isinstance(error, Mistake)
    assert error.at == "flows/orders.py:3"


def test_partitions_and_key(ods: Ingesting):
    ods.source = replace(ods.source, partition=("name",), key=("id",))
    ods.write("a.csv", "id,name\n1,a\n2,b\n3,a\n")
    ods.run()
    assert len(ods.seen["data/a.csv"].files) == 2
    assert table_metadata.load_metadata(ods.store, ods.done.location).properties["runnel.key"] == "id"
    ods.write("a.csv", "id,name\n4,a\n")
    ods.run()
    assert ods.rows == [(4, "a")]


def test_a_file_replaces_its_rows_after_a_compaction(ods: Ingesting):
    for number in range(5):
        ods.write(f"{number}.csv", f"id,name\n{number},a\n")
    ods.run()
    content = ods.content
    [done] = compact(ods.store, ORDERS)
    assert (done.files_before, done.files_after, done.rows) == (5, 1, 5)
    [again] = compact(ods.store, ORDERS)
    assert (again.commit, again.note) == (None, "nothing to do")
    ods.write("3.csv", "id,name\n33,b\n")
    ods.run()
    assert sorted(ods.rows) == [(0, "a"), (1, "a"), (2, "a"), (4, "a"), (33, "b")]
    ods.write("3.csv", "id,name\n3,a\n")
    ods.run()
    assert ods.content == content  # a file is known by its contents, wherever its rows were moved


def test_rows_that_another_engine_put_together_are_not_doubled(ods: Ingesting):
    ods.write("a.csv", GOOD)
    ods.run()
    version = ods.store.state()[ORDERS]
    metadata = table_metadata.load_metadata(ods.store, version.location)
    [whole] = write_rows(ods.store, metadata, pa.table({"id": [1], "name": ["a"]}).to_batches())
    staged = stage_version(
        ods.store, version.location, VersionEdit([whole], list(read_entries(ods.store, metadata)), is_rewrite=True)
    )
    change = CommitChange(ORDERS, version.location, staged, version.content)
    publish(ods.store.db, CommitDraft("main", "rewrite", "ada", (change,)))
    ods.write("a.csv", "id,name\n2,b\n")
    assert failed(ods).code == "SOURCE_ROWS_REWRITTEN"


DIALECTS = {
    "semicolons": (
        b"id;name\n1;a\n",
        "SOURCE_CSV",
        'name the delimiter: delimiter=";"; if it is one column, delimiter=","',
    ),
    "cp1252": ("id,name\n1,café\n".encode("cp1252"), "SOURCE_ENCODING", 'name the encoding: encoding="cp1252"'),
    "UTF-16": ("id,name\n1,a\n".encode("utf-16"), "SOURCE_ENCODING", 'name the encoding: encoding="utf-16"'),
}


@pytest.mark.parametrize(("contents", "code", "fix"), DIALECTS.values(), ids=DIALECTS)
def test_another_dialect_is_named(ods: Ingesting, contents: bytes, code: str, fix: str):
    ods.write("a.csv", contents)
    error = failed(ods)
    assert (error.code, error.fix) == (code, fix)
