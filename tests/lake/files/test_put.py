"""Put files into the lake: what is stored, what is replaced, and what is left alone."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.files import disk_reader, file_table
from runnel.lake.files.blobs import BlobUploads, make_garbage_test
from runnel.lake.files.disk_paths import DiskFile
from runnel.lake.files.disk_reader import DiskReader
from runnel.lake.files.file_commit import find_matching_files
from runnel.lake.files.file_rows import find_changed_paths
from runnel.lake.files.get import get_files
from runnel.lake.files.ls import FileRow, list_files
from runnel.lake.files.put import put_files
from runnel.lake.files.remove import remove_files
from runnel.lake.history import branches
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.scan import scan_units
from runnel.lake.store import Store
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.work_place import EXECUTORS, PROCESS
from runnel.names import TableName
from tests.lake.factories import create, rows
from tests.lake.files.factories import DOCS, LARGE, blobs_on_disk, contents, paths, put_tree, tree
from tests.lake.pickling_runner import PicklingRunner

SOME: dict[str, bytes | str] = {"a.txt": "a", "empty": "", "sub/large.bin": LARGE, "ünï/ö.txt": "ö"}


def plain(files: dict[str, bytes | str]) -> dict[str, bytes]:
    return {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}


def test_what_is_put_comes_back(both: Store, tmp_path: Path):
    done = put_tree(both, tmp_path / "in", SOME)
    assert (done.added, done.replaced, done.unchanged) == (4, 0, 0)
    assert done.commit and done.commit.message == "put 4 files into ods.docs"
    assert contents(both, tmp_path / "out") == plain(SOME)


def test_a_listing_tells_size_time_and_checksum(store: Store, tmp_path: Path):
    tree(tmp_path / "in", {"a.txt": "abc"})
    os.utime(tmp_path / "in/a.txt", ns=(0, 1_767_340_800_123_456_789))
    put_files(store, DOCS, [tmp_path / "in"])
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert list(list_files(store, DOCS)) == [FileRow("a.txt", 3, datetime(2026, 1, 2, 8, 0, 0, 123456, UTC), sha256)]


def test_large_contents_become_one_blob(store: Store, tmp_path: Path):
    put_tree(store, tmp_path / "in", {"a": LARGE, "b": LARGE, "small": "s"})
    put_files(store, TableName("ods", "other"), [tmp_path / "in"])
    branches.fork_branch(store.db, "dev", store.commit(), store.author)
    put_tree(store, tmp_path / "in", {"c": LARGE}, branch="dev")
    assert [blob.read_bytes() for blob in blobs_on_disk(store)] == [LARGE]


@pytest.mark.cluster
def test_units_put_what_one_process_puts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_units, "LEAST_UNIT_BYTES", 3 * (64 << 10))
    folder = tree(tmp_path / "in", {**SOME, "twice": LARGE, **{f"many/{number}": str(number) for number in range(20)}})
    runner, other = PicklingRunner(parallel_units=16), TableName("ods", "other")

    def put_both() -> list[tuple[int, int, int, int]]:
        results = [
            put_files(store, table, [folder], work=work)
            for table, work in ((DOCS, IN_PROCESS), (other, WorkContext(runner)))
        ]
        assert [result.place.name for result in results if result.place] == [PROCESS, EXECUTORS]
        return [(result.added, result.replaced, result.unchanged, result.bytes) for result in results]

    first, in_units = put_both()
    assert first == in_units
    assert first[:3] == (25, 0, 0)
    assert len(runner.units) > 5
    assert [blob.read_bytes() for blob in blobs_on_disk(store)] == [LARGE]
    tree(folder, {"a.txt": "changed", "many/21": "new", "sub/large.bin": LARGE + b"r"})
    second, in_units = put_both()
    assert second == in_units
    assert second[:3] == (1, 2, 23)
    listings = [[(row.path, row.size, row.sha256) for row in list_files(store, table)] for table in (DOCS, other)]
    assert listings[0] == listings[1]
    get_files(store, other, None, tmp_path / "out")
    assert (tmp_path / "out/sub/large.bin").read_bytes() == LARGE + b"r"
    assert put_files(store, other, [folder], work=WorkContext(runner)).commit is None


def test_units_use_no_blob_that_is_listed_as_garbage(store: Store, tmp_path: Path) -> None:
    put_tree(store, tmp_path / "in", {"a": LARGE})
    [blob] = blobs_on_disk(store)
    row = {"path": str(blob), "bytes": len(LARGE), "found_at": "2026-01-01"}
    store.db.write(lambda connection: connection.execute(schema.garbage.insert().values(**row)))
    put_files(store, TableName("ods", "other"), [tmp_path / "in"], work=WorkContext(PicklingRunner()))
    assert len(blobs_on_disk(store)) == 2


def test_only_what_changed_is_written(store: Store, tmp_path: Path):
    first = put_tree(store, tmp_path / "in", SOME)
    again = put_tree(store, tmp_path / "in", SOME)
    assert again.commit is None and again.unchanged == 4 and store.commit() == first.commit
    third = put_tree(store, tmp_path / "in", {"a.txt": "changed", "new": "n"})
    assert (third.added, third.replaced, third.unchanged, third.bytes) == (1, 1, 3, 8)
    expected = plain(SOME) | {"a.txt": b"changed", "new": b"n"}
    assert contents(store, tmp_path / "out") == expected
    assert contents(store, tmp_path / "before", at="main~1") == plain(SOME)
    before, after = (store.state(ref)[DOCS].location for ref in ("main~1", "main"))
    assert find_changed_paths(store, before, after).keys() == {"a.txt", "new"}
    assert find_changed_paths(store, after, before)["new"] is None


def test_contents_may_grow_into_a_blob_and_shrink_again(store: Store, tmp_path: Path):
    for content in (b"s", LARGE, b"t"):
        put_tree(store, tmp_path / "in", {"a": content, "b": "b"})
        out = tmp_path / f"out{len(content)}{content[:1]!r}"
        assert contents(store, out) == {"a": content, "b": b"b"}


def test_replacing_one_file_rewrites_one_data_file(store: Store, tmp_path: Path, monkeypatch):
    sizes = {"write.target-file-size-bytes": "20000", "write.parquet.row-group-size-bytes": "5000"}
    monkeypatch.setattr(file_table, "PROPERTIES", file_table.PROPERTIES | sizes)
    monkeypatch.setattr(disk_reader, "BATCH_FILES", 4)
    put_tree(store, tmp_path / "in", {f"{number:03d}": os.urandom(1000) for number in range(100)})
    before = data_files(store)
    assert len(before) >= 4
    put_tree(store, tmp_path / "in", {"050": b"changed"})
    after = data_files(store)
    assert len(before - after) == 1 and len(after - before) == 2
    assert (
        len(find_matching_files(store, table_metadata.load_metadata(store, store.state()[DOCS].location), ["050"])) == 1
    )
    assert paths(store) == [f"{number:03d}" for number in range(100)]
    assert paths(store, "04*") == [f"{number:03d}" for number in range(40, 50)]


def data_files(store: Store) -> set[str]:
    return {
        entry.path for entry in read_entries(store, table_metadata.load_metadata(store, store.state()[DOCS].location))
    }


def test_remove(both: Store, tmp_path: Path):
    put_tree(both, tmp_path / "in", {"a/1": "1", "a/2": LARGE, "b": "b"})
    planned = remove_files(both, DOCS, ["a/*"], dry_run=True)
    assert (planned.commit, planned.paths, planned.bytes) == (None, ("a/1", "a/2"), 1 + len(LARGE))
    assert paths(both) == ["a/1", "a/2", "b"], "a dry run removes nothing"
    done = remove_files(both, DOCS, ["a/*"])
    assert (done.paths, done.bytes) == (planned.paths, planned.bytes) and done.commit
    assert paths(both) == ["b"] and paths(both, at="main~1") == ["a/1", "a/2", "b"]
    with pytest.raises(Mistake, match=r"no file of `ods\.docs` matches `bb`; close: `b`"):
        remove_files(both, DOCS, ["bb"])
    remove_files(both, DOCS, ["**"])
    assert paths(both) == []
    put_tree(both, tmp_path / "in", {})
    assert paths(both) == ["a/1", "a/2", "b"]


def test_another_kind_of_table_is_refused(store: Store, tmp_path: Path):
    create(store, "ods.orders", rows((1, "d", 2)))
    orders, folder = TableName("ods", "orders"), tree(tmp_path / "in", {"a": "a"})
    for use in (
        lambda: put_files(store, orders, [folder]),
        lambda: list_files(store, orders),
        lambda: remove_files(store, orders, ["a"]),
    ):
        with pytest.raises(Mistake, match=r"`ods\.orders` holds rows, not files") as refused:
            use()
        assert refused.value.code == "FILES_NOT_A_FILE_TABLE"


def test_an_unknown_branch_is_refused_before_anything_is_read(store: Store, tmp_path: Path):
    with pytest.raises(Mistake, match="mian"):
        put_files(store, DOCS, [tmp_path / "not there"], branch="mian")


def grow(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"more")


CHANGES = {
    "grows": grow,
    "touched": lambda file: os.utime(file, ns=(1, 1)),
    "shrinks": lambda file: os.truncate(file, 1),
}


@pytest.mark.parametrize("size", [100, 400_000], ids=["inline", "blob"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_changes_while_it_is_read_is_refused(store: Store, tmp_path: Path, monkeypatch, change, size):
    file = tree(tmp_path / "in", {"a": b"x" * size}) / "a"
    for name in ("_read_content", "_hash_content"):
        read = getattr(disk_reader, name)
        monkeypatch.setattr(disk_reader, name, lambda *given, read=read: (read(*given), change(file))[0])
    with pytest.raises(Mistake, match="changed while it was read") as refused:
        put_files(store, DOCS, [file])
    assert refused.value.code == "FILES_CHANGED" and DOCS not in store.state()


def test_a_file_that_changes_between_its_checksum_and_its_blob_is_refused(store: Store, tmp_path: Path):
    file = tree(tmp_path / "in", {"a": LARGE}) / "a"

    class Meanwhile(BlobUploads):
        def ensure_blob(self, sha256, size, read):
            file.write_bytes(b"y" * len(LARGE))
            return super().ensure_blob(sha256, size, read)

    with pytest.raises(Mistake, match="changed while it was read"):
        list(
            DiskReader(Meanwhile(store, make_garbage_test(store)), 10, {}).read([DiskFile("a", str(file), len(LARGE))])
        )
    assert blobs_on_disk(store) == []


def test_a_file_that_became_a_link_or_vanished_is_refused(store: Store, tmp_path: Path):
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("link", "gone"):
        with pytest.raises(Mistake, match="can't be read"):
            list(
                DiskReader(BlobUploads(store, make_garbage_test(store)), 10, {}).read(
                    [DiskFile("a", str(tmp_path / name), 1)]
                )
            )


def test_progress_is_told(store: Store, tmp_path: Path):
    told: list[tuple[str, int, int | None]] = []
    put_tree(store, tmp_path / "in", SOME, work=WorkContext(report_progress=lambda *now: told.append(now)))
    assert told[-1] == ("put", 4, 4)
