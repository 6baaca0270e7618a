"""Ingesting the files of a source: what is read, replaced, kept, removed, and what the content is called."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.connect.ingest.detect import arrivals
from runnel.connect.ingest.detect.file_changes import FileChanges
from runnel.connect.load.load import load_files
from runnel.errors import Mistake
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.merge.revert import revert_commit
from runnel.lake.publish import CommitDraft, publish
from tests.connect.ingest.file_source import ORDERS, Ingesting


def counts(found: FileChanges) -> tuple[int, int, int, int, int]:
    return len(found.new), len(found.changed), len(found.removed), len(found.renamed), len(found.touched)


A, B = "id,name\n1,a\n2,b\n", "id,name\n3,c\n"


def test_new_files_are_read_and_only_they(ods: Ingesting):
    ods.write("a.csv", A)
    ods.write("deep/er/b.csv", B)
    ods.write(".hidden.csv", "nothing")
    ods.write("other.txt", "nothing")
    found = ods.run()
    assert counts(found) == (2, 0, 0, 0, 0)
    assert found.content == ods.content == ods.done.content
    assert ods.rows == [(1, "a"), (2, "b"), (3, "c")]
    assert ods.done.rows == 3
    assert table_metadata.load_metadata(ods.store, ods.done.location).properties["runnel.source"] == "files"
    ods.write("c.csv", "name,id\nd,4\n")
    assert [each.path for each in ods.run().files_to_read] == ["data/c.csv"]
    assert ods.done.rows == 1
    assert ods.rows[-1] == (4, "d")


def test_each_file_has_data_files_of_its_own(ods: Ingesting):
    ods.write("a.csv", A)
    ods.write("b.csv", B)
    ods.run()
    live = {entry.path for entry in read_entries(ods.store, table_metadata.load_metadata(ods.store, ods.done.location))}
    assert live == {file for seen in ods.seen.values() for file in seen.files}
    assert all(len(seen.files) == 1 for seen in ods.seen.values())


def test_nothing_new_is_nothing_and_nothing_is_hashed(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    ods.write("a.csv", A)
    ods.run()
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.compute_digest", None)
    found = ods.run()
    assert found.is_empty
    assert (found.unchanged, found.bytes, found.content) == (1, 0, ods.content)


def test_nobody_loads_into_a_table_that_a_source_fills(ods: Ingesting):
    ods.write("a.csv", A)
    ods.run()
    with pytest.raises(Mistake) as refused:
        load_files(ods.store, ORDERS, [str(ods.root / "data/a.csv")])
    assert str(refused.value) == (
        "LOAD_SOURCE_TABLE: `ods.orders` is filled by a source: the source would neither replace nor remove rows that "
        "were loaded by hand\n  fix: give the rows to the source, or load them into a table of its own, declared with "
        "rn.manual()"
    )
    assert ods.rows == [(1, "a"), (2, "b")]


def overwrite(ods: Ingesting):
    ods.write("a.csv", "id,name\n9,z\n")


def delete(ods: Ingesting):
    (ods.root / "data/a.csv").unlink()


def rename(ods: Ingesting):
    (ods.root / "data/a.csv").rename(ods.root / "data/renamed.csv")


def touch(ods: Ingesting):
    os.utime(ods.root / "data/a.csv", ns=(1, 1))


def copy(ods: Ingesting):
    shutil.copy(ods.root / "data/a.csv", ods.root / "data/copy.csv")


def move_over(ods: Ingesting):
    (ods.root / "data/a.csv").rename(ods.root / "data/b.csv")


def rotate(ods: Ingesting):
    (ods.root / "data/b.csv").rename(ods.root / "data/c.csv")
    (ods.root / "data/a.csv").rename(ods.root / "data/b.csv")
    ods.write("a.csv", "id,name\n9,z\n")


def replace_by_copy(ods: Ingesting):
    shutil.copy(ods.root / "data/a.csv", ods.root / "data/b.csv")


ROWS_A, ROWS_B = [(1, "a"), (2, "b")], [(3, "c")]
HAPPENINGS = {  # what happens, under which policy; new, changed, gone, renamed, touched; rows afterwards
    "changed": (overwrite, "keep", (0, 1, 0, 0, 0), [*ROWS_B, (9, "z")]),
    "changed, delete": (overwrite, "delete", (0, 1, 0, 0, 0), [*ROWS_B, (9, "z")]),
    "vanished, keep": (delete, "keep", (0, 0, 0, 0, 0), [*ROWS_A, *ROWS_B]),
    "vanished, delete": (delete, "delete", (0, 0, 1, 0, 0), ROWS_B),
    "renamed, keep": (rename, "keep", (0, 0, 0, 1, 0), [*ROWS_A, *ROWS_B]),
    "renamed, delete": (rename, "delete", (0, 0, 0, 1, 0), [*ROWS_A, *ROWS_B]),
    "touched": (touch, "keep", (0, 0, 0, 0, 1), [*ROWS_A, *ROWS_B]),
    "copied": (copy, "keep", (1, 0, 0, 0, 0), [(1, "a"), (1, "a"), (2, "b"), (2, "b"), *ROWS_B]),
    "moved over another": (move_over, "keep", (0, 0, 1, 1, 0), ROWS_A),
    "moved over another, delete": (move_over, "delete", (0, 0, 1, 1, 0), ROWS_A),
    "rotated": (rotate, "keep", (0, 1, 0, 2, 0), [*ROWS_A, *ROWS_B, (9, "z")]),
    "overwritten by a copy": (replace_by_copy, "keep", (0, 1, 0, 0, 0), [(1, "a"), (1, "a"), (2, "b"), (2, "b")]),
}


@pytest.mark.parametrize(("happens", "removed", "expected", "rows"), HAPPENINGS.values(), ids=HAPPENINGS)
def test_what_happens_to_files(ods: Ingesting, happens, removed: str, expected: tuple[int, ...], rows: list):
    ods.declare("v1", removed=removed)
    ods.write("a.csv", A)
    ods.write("b.csv", B)
    ods.run()
    before = ods.content
    happens(ods)
    found = ods.run()
    assert counts(found) == expected
    assert ods.rows == sorted(rows, key=repr)
    assert found.content == ods.content
    assert (ods.content == before) == found.is_empty
    again = ods.run()
    assert again.is_empty
    assert counts(again) == (0, 0, 0, 0, 0)
    assert again.content == ods.content


def test_a_renamed_file_that_changes_replaces_its_rows(ods: Ingesting):
    ods.write("a.csv", A)
    ods.run()
    rename(ods)
    ods.run()
    ods.write("a.csv", B)  # another file under the old name
    ods.run()
    assert ods.rows == [(1, "a"), (2, "b"), (3, "c")]
    ods.write("renamed.csv", "id,name\n7,x\n")
    ods.run()
    assert ods.rows == [(3, "c"), (7, "x")]


def test_there_and_back_is_the_same_content(ods: Ingesting):
    ods.write("a.csv", A)
    first = ods.run().content
    ods.write("a.csv", B)
    second = ods.run().content
    ods.write("a.csv", A)
    assert ods.look().content == first
    ods.run()
    assert ods.content == first != second
    ods.write("a.csv", B)
    ods.run()
    assert ods.content == second


def test_a_known_version_may_be_taken_instead_of_reading(ods: Ingesting):
    ods.write("a.csv", A)
    ods.run()
    known = ods.store.state()[ORDERS]
    ods.write("a.csv", B)
    ods.run()
    ods.write("a.csv", A)
    found = ods.look()
    assert found.content == known.content
    change = CommitChange(ORDERS, ods.store.state()[ORDERS].location, known.location, known.content)
    publish(ods.store.db, CommitDraft("main", "reuse", "ada", (change,)))
    ods.seen |= {each.path: each for each in found.list_processed_files({})}
    assert ods.run().is_empty
    ods.write("a.csv", "id,name\n8,y\n")
    ods.run()
    assert ods.rows == [(8, "y")]


def test_a_file_that_comes_back_after_it_was_deleted(ods: Ingesting):
    ods.declare("v1", removed="delete")
    ods.write("a.csv", A)
    ods.write("b.csv", B)
    ods.run()
    content = ods.content
    delete(ods)
    ods.run()
    assert ods.seen["data/a.csv"].is_removed
    ods.write("a.csv", A)
    assert counts(ods.run()) == (1, 0, 0, 0, 0)
    assert ods.rows == [*ROWS_A, *ROWS_B]
    assert ods.content == content


def test_all_files_may_go(ods: Ingesting):
    ods.declare("v1", removed="delete")
    ods.write("a.csv", A)
    ods.run()
    delete(ods)
    found = ods.run()
    assert "no file matches" in found.problem
    assert ods.rows == []


REVERTS = {
    "to no rows of it": ("id,name\n5,e\n", None, [(3, "c"), (9, "z")]),
    "to earlier rows of it": ("id,name\n5,e\n", A, [(3, "c"), (9, "z")]),
    "from nothing to rows of it": ("id,name\n", A, [(3, "c"), (9, "z")]),
}


@pytest.mark.parametrize(("bad", "earlier", "rows"), REVERTS.values(), ids=REVERTS)
def test_a_revert_keeps_the_position_and_a_change_replaces_what_is_there(
    ods: Ingesting, bad: str, earlier: str | None, rows: list
):
    ods.write("b.csv", B)
    if earlier:
        ods.write("a.csv", earlier)
    ods.run()
    content = ods.content
    ods.write("a.csv", bad)
    ods.run()
    revert_commit(ods.store, "main")
    assert ods.content == content
    assert ods.run().is_empty  # not read again by itself
    ods.write("a.csv", "id,name\n9,z\n")
    found = ods.run()
    assert found.content is None
    assert ods.rows == rows
    after = ods.content
    ods.write("a.csv", bad)
    ods.run()
    assert ods.content not in (content, after)
    assert ods.run().is_empty


def test_other_ways_to_read_read_everything_again(ods: Ingesting):
    ods.write("a.csv", "id,name\n1,7\n2,\n")
    ods.write("b.csv", "id,name\n3,8\n")
    ods.run()
    ods.declare("v2", schema="id int not null, name long", partition=("id",))
    assert counts(ods.look()) == (0, 2, 0, 0, 0)
    ods.run()
    assert ods.rows == [(1, 7), (2, None), (3, 8)]
    schema = table_metadata.load_metadata(ods.store, ods.done.location).schema()
    assert [(each.name, str(each.field_type), each.required) for each in schema.fields] == [
        ("id", "int", True),
        ("name", "long", False),
    ]
    assert ods.run().is_empty


def test_rows_of_a_vanished_file_stay_though_others_are_read_in_another_way(ods: Ingesting):
    ods.write("a.csv", A)
    ods.write("b.csv", B)
    ods.run()
    delete(ods)
    ods.declare("v2", schema="id long, name string, more string")
    ods.write("b.csv", "id,name,more\n3,c,x\n")
    ods.run()
    assert ods.rows == [(1, "a", None), (2, "b", None), (3, "c", "x")]


def test_a_renamed_file_that_is_read_in_another_way(ods: Ingesting):
    ods.write("a.csv", A)
    ods.run()
    rename(ods)
    ods.declare("v2", schema="id int, name string")
    assert counts(ods.run()) == (0, 1, 0, 0, 0)
    assert ods.rows == ROWS_A
    assert ods.seen["data/a.csv"].is_removed
    assert ods.run().is_empty


def test_without_a_table_nothing_counts_as_read(ods: Ingesting):
    ods.write("a.csv", A)
    ods.run()
    change = CommitChange(ORDERS, ods.store.state()[ORDERS].location, None)
    publish(ods.store.db, CommitDraft("main", "drop", "ada", (change,)))
    assert counts(ods.run()) == (1, 0, 0, 0, 0)
    assert ods.rows == ROWS_A


GLOBS = {
    "no such folder": ("dta/*.csv", "the project's folder has `data`"),
    "another ending": ("data/*.tsv", "the folder data has `orders.csv`"),
    "a folder": ("data", "'data' is a folder; write 'data/*'"),
    "deep": ("data/**/x.json", "the folder data has `orders.csv`"),
}


@pytest.mark.parametrize(("glob", "said"), GLOBS.values(), ids=GLOBS)
def test_a_glob_without_matches(ods: Ingesting, glob: str, said: str):
    ods.write("orders.csv", A)
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob=glob))
    found = ods.look()
    assert found.is_empty
    assert said in found.problem


def test_an_absolute_glob(ods: Ingesting, tmp_path: Path):
    (tmp_path / "x.csv").write_text(A)
    ods.source = replace(ods.source, origin=replace(ods.source.origin, glob=f"{tmp_path}/*.csv"))
    assert [each.path for each in ods.run().files_to_read] == [f"{tmp_path}/x.csv"]
    assert ods.rows == ROWS_A


def test_a_digest_is_remembered(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    ods.write("a.csv", A)
    os.utime(ods.root / "data/a.csv", ns=(5, 5))
    ods.look()
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.compute_digest", None)
    assert counts(ods.look()) == (1, 0, 0, 0, 0)


def test_a_damaged_cache_is_made_anew(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    cache = ods.root / ".runnel" / "digests.db"
    cache.parent.mkdir()
    cache.write_text("no database " * 1000)
    ods.write("a.csv", A)
    os.utime(ods.root / "data/a.csv", ns=(5, 5))
    ods.look()
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.compute_digest", None)
    assert counts(ods.look()) == (1, 0, 0, 0, 0)


def test_what_was_written_just_now_is_hashed_again(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arrivals.time, "time_ns", lambda: 1_000_000_001)
    for contents in (A, A.replace("1,a", "1,x")):
        ods.write("a.csv", contents)
        os.utime(ods.root / "data/a.csv", ns=(1_000_000_001, 1_000_000_001))  # two writes within a tick of the clock
        ods.look()
    monkeypatch.undo()
    ods.run()
    assert ods.rows == [(1, "x"), (2, "b")]


def test_a_plan_imports_nothing_heavy():
    code = (
        "import sys, runnel.connect.ingest.ingest, runnel.connect.ingest.detect.arrivals; "
        "print(*{'pyiceberg', 'pyarrow', 'duckdb', 'sqlglot', 'pyspark', 'numpy', 'tenacity'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_many_files_and_one_more(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    for number in range(150):
        ods.write(f"{number:03}.csv", f"id,name\n{number},n\n{number},m\n")
    ods.run()
    assert len(ods.rows) == 300
    assert {len(seen.files) for seen in ods.seen.values()} == {1}
    ods.write("one_more.csv", "id,name\n-1,n\n")
    monkeypatch.setattr(
        "runnel.lake.iceberg.manifests.SnapshotManifestWriter.write_rewritten", None
    )  # no manifest is written again
    monkeypatch.setattr("runnel.connect.ingest.replaced_files.read_manifest_entries", None)  # and none read
    ods.run()
    assert len(ods.rows) == 301


LARGE = "id,name\n" + "".join(f"{number},n{number}\n" for number in range(50))


def test_a_large_file_is_not_read_to_identify_it(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.HASHED_BYTES", 100)
    monkeypatch.setattr("runnel.connect.ingest.detect.digests._END_BYTES", 10)
    ods.write("large.csv", LARGE)
    ods.write("small.csv", A)
    ods.run()
    assert len(ods.rows) == 52
    assert ods.run().is_empty
    path = ods.root / "data" / "large.csv"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    changed = LARGE.replace("25,n25", "25,x25")  # the same size, start and end
    path.write_text(changed)
    assert counts(ods.run()) == (0, 1, 0, 0, 0)  # by its time
    assert (25, "x25") in ods.rows and len(ods.rows) == 52
    os.utime(path, ns=times)
    ods.run()
    assert len(ods.rows) == 52


def test_a_large_file_that_is_renamed_replaces_its_own_rows(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.HASHED_BYTES", 100)
    ods.write("large.csv", LARGE)
    ods.write("small.csv", A)
    ods.run()
    (ods.root / "data" / "large.csv").rename(ods.root / "data" / "renamed.csv")
    assert counts(ods.run()) == (0, 1, 0, 0, 0)  # read again, in the place of its rows
    assert len(ods.rows) == 52
    assert ods.run().is_empty


def test_a_large_file_that_was_hashed_before_is_not_read_again(ods: Ingesting, monkeypatch: pytest.MonkeyPatch):
    ods.write("large.csv", LARGE)
    ods.run()
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.HASHED_BYTES", 100)
    assert ods.run().is_empty
