"""Get files out of the lake: verified, whole, and never outside of the folder."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from runnel.errors import CorruptData, Mistake, RunnelError
from runnel.lake.files.get import get_files
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from tests.lake.files.factories import (
    DOCS,
    LARGE,
    blobs_on_disk,
    contents,
    paths,
    put_tree,
    tree,
    write_rows_as_another_engine,
)

SOME: dict[str, bytes | str] = {"a.txt": "a", "sub/b.txt": "b", "sub/large": LARGE}


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Store:
    put_tree(store, tmp_path / "in", SOME)
    return store


def test_a_glob_chooses(filled: Store, tmp_path: Path):
    assert contents(filled, tmp_path / "out", "sub/*.txt") == {"sub/b.txt": b"b"}


def test_times_are_restored(filled: Store, tmp_path: Path):
    os.utime(tree(tmp_path / "in", {"t": "t", "u": LARGE + b"u"}) / "t", (1_000_000_000, 1_000_000_000))
    os.utime(tmp_path / "in/u", (1_000_000_001, 1_000_000_001))
    put_tree(filled, tmp_path / "in", {})
    get_files(filled, DOCS, "[tu]", tmp_path / "out")
    assert [(tmp_path / "out" / name).stat().st_mtime for name in "tu"] == [1_000_000_000, 1_000_000_001]


def test_what_is_there_already_stays(filled: Store, tmp_path: Path):
    out = tree(tmp_path / "out", {"a.txt": "a"})
    done = get_files(filled, DOCS, None, out)
    assert (done.written, done.unchanged, done.bytes) == (2, 1, 1 + len(LARGE))
    assert get_files(filled, DOCS, None, out).written == 0


def test_other_contents_are_not_overwritten_unless_asked(filled: Store, tmp_path: Path):
    out = tree(tmp_path / "out", {"sub/b.txt": "mine"})
    with pytest.raises(Mistake, match=r"already has `sub/b\.txt`") as refused:
        get_files(filled, DOCS, None, out)
    assert refused.value.code == "FILES_EXISTS" and [file.name for file in out.iterdir()] == ["sub"]
    get_files(filled, DOCS, None, out, overwrite=True)
    assert (out / "sub/b.txt").read_bytes() == b"b"


def test_no_match_names_the_nearest(filled: Store, tmp_path: Path):
    with pytest.raises(Mistake, match=r"close: `sub/b\.txt`") as refused:
        get_files(filled, DOCS, "sbu/b.txt", tmp_path / "out")
    assert refused.value.code == "FILES_NO_MATCH" and not (tmp_path / "out").exists()


def outside(tmp_path: Path) -> Path:
    return tree(tmp_path / "outside", {"b.txt": "mine", "large": "mine"})


def test_a_link_that_leads_out_is_not_followed(filled: Store, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/sub").symlink_to(outside(tmp_path))
    for overwrite in (False, True):
        with pytest.raises(Mistake, match="points outside") as refused:
            get_files(filled, DOCS, None, tmp_path / "out", overwrite=overwrite)
        assert refused.value.code == "FILES_SYMLINK"
    assert (tmp_path / "outside/b.txt").read_text() == "mine"


def test_a_file_that_is_a_link_is_replaced_not_followed(filled: Store, tmp_path: Path):
    (tree(tmp_path / "out", {"sub/x": "x"}) / "sub/b.txt").symlink_to(outside(tmp_path) / "b.txt")
    with pytest.raises(Mistake, match="already has"):
        get_files(filled, DOCS, "sub/b.txt", tmp_path / "out")
    get_files(filled, DOCS, "sub/b.txt", tmp_path / "out", overwrite=True)
    assert (tmp_path / "outside/b.txt").read_text() == "mine"
    assert (tmp_path / "out/sub/b.txt").read_text() == "b" and not (tmp_path / "out/sub/b.txt").is_symlink()


def test_the_folder_may_be_a_link_and_may_hold_links_within(filled: Store, tmp_path: Path):
    tree(tmp_path / "real", {"elsewhere/x": "x"})
    (tmp_path / "real/sub").symlink_to("elsewhere")
    (tmp_path / "out").symlink_to("real")
    get_files(filled, DOCS, "sub/b.txt", tmp_path / "out")
    assert (tmp_path / "real/elsewhere/b.txt").read_text() == "b"


NOT_WRITABLE = {
    "the folder is a file": (lambda out: out.write_text("x"), "is not a folder"),
    "a file stands where a folder must": (lambda out: tree(out, {"sub": "x"}), "can't be written|already has"),
    "a folder stands where a file must": (lambda out: tree(out, {"a.txt/x": "x"}), "can't be written|already has"),
}


@pytest.mark.parametrize(("make", "what"), NOT_WRITABLE.values(), ids=NOT_WRITABLE)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_can_not_be_written_is_told(filled: Store, tmp_path: Path, make, what, overwrite):
    make(tmp_path / "out")
    with pytest.raises(RunnelError, match=what):
        get_files(filled, DOCS, None, tmp_path / "out", overwrite=overwrite)


HOSTILE = {
    "path out of the folder": ({"path": "../evil"}, "FILES_PATH_UNSAFE"),
    "absolute path": ({"path": "/tmp/evil"}, "FILES_PATH_UNSAFE"),
    "path with NUL": ({"path": "a\0b"}, "FILES_PATH_UNSAFE"),
    "path twice": ({"path": "a.txt"}, "FILES_PATH_TWICE"),
    "blob out of the warehouse": ({"path": "x", "sha256": "0" * 64, "blob": "../../../../etc/passwd"}, "FILES_DAMAGED"),
    "blob that is no blob": ({"path": "x", "sha256": "0" * 64, "blob": "ods/docs"}, "FILES_DAMAGED"),
    "blob that is gone": ({"path": "x", "sha256": "0" * 64, "blob": ".blobs/00/" + "0" * 62}, "FILES_DAMAGED"),
    "wrong checksum": ({"path": "x", "size": 1, "sha256": "0" * 64, "content": b"1"}, "FILES_DAMAGED"),
    "no checksum": ({"path": "x", "size": 1, "content": b"1"}, "FILES_DAMAGED"),
    "no contents": ({"path": "x", "size": 1, "sha256": "0" * 64}, "FILES_DAMAGED"),
}


@pytest.mark.parametrize(("row", "code"), HOSTILE.values(), ids=HOSTILE)
def test_rows_that_another_engine_wrote_can_do_no_harm(filled: Store, tmp_path: Path, row, code):
    write_rows_as_another_engine(filled, [row])
    with pytest.raises(CorruptData) as refused:
        get_files(filled, DOCS, None, tmp_path / "deep/out")
    assert refused.value.code == code
    found = {str(file.relative_to(tmp_path / "deep")) for file in (tmp_path / "deep").rglob("*") if file.is_file()}
    assert found <= {f"out/{path}" for path in SOME}


def test_a_damaged_blob_is_named_and_leaves_no_file(filled: Store, tmp_path: Path):
    (blob,) = blobs_on_disk(filled)
    blob.write_bytes(b"L" + LARGE[1:])
    with pytest.raises(CorruptData, match=r"`sub/large` \(blob \.blobs/..") as refused:
        get_files(filled, DOCS, None, tmp_path / "out")
    assert refused.value.code == "FILES_DAMAGED"
    assert not (tmp_path / "out/sub/large").exists() and not list((tmp_path / "out").rglob(".runnel-*"))


def test_rows_that_another_engine_deleted_are_gone(filled: Store, tmp_path: Path):
    before = filled.state()[DOCS].location
    metadata = table_metadata.load_metadata(filled, before)
    (entry,) = read_entries(filled, metadata)
    path = f"{metadata.location}/data/deletes.parquet"
    pq.write_table(pa.table({"file_path": [f"file:{entry.path}"], "pos": [1]}), path)
    gone = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=entry.file.partition,
        record_count=1,
        file_size_in_bytes=1,
    )
    gone.spec_id = 0
    after = stage_version(filled, before, VersionEdit(added=[gone]))
    publish(filled.db, CommitDraft("main", "delete", "eve", (CommitChange(DOCS, before, after),)))
    assert paths(filled) == ["a.txt", "sub/large"]
    put_tree(filled, tmp_path / "in", {"a.txt": "changed"})
    assert sorted(contents(filled, tmp_path / "out")) == ["a.txt", "sub/b.txt", "sub/large"]
