"""Blobs: whole or absent, never relied on when they are about to be swept, and found by what a version references."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.lake.catalog import schema
from runnel.lake.files import blobs
from runnel.lake.files.put import put_files
from runnel.lake.files.remove import remove_files
from runnel.lake.iceberg import table_metadata
from runnel.lake.store import Store
from tests.lake.files.factories import DOCS, LARGE, blobs_on_disk, contents, put_tree, tree


def referenced(store: Store, ref: str = "main") -> set[str]:
    return set(blobs.find_referenced(store, table_metadata.load_metadata(store, store.state(ref)[DOCS].location)))


def test_a_version_references_its_blobs(store: Store, tmp_path: Path):
    put_tree(store, tmp_path / "in", {"a": LARGE, "b": LARGE + b"b", "small": "s"})
    assert referenced(store) == {str(path) for path in blobs_on_disk(store)} and len(referenced(store)) == 2
    remove_files(store, DOCS, ["b"])
    assert len(referenced(store)) == 1 and len(referenced(store, "main~1")) == 2


def test_data_files_that_were_seen_are_not_read_again(store: Store, tmp_path: Path):
    put_tree(store, tmp_path / "in", {"a": LARGE})
    put_tree(store, tmp_path / "in", {"b": LARGE + b"b"})
    seen: set[str] = set()
    found = [
        len(
            set(
                blobs.find_referenced(store, table_metadata.load_metadata(store, store.state(ref)[DOCS].location), seen)
            )
        )
        for ref in ("main~1", "main")
    ]
    assert found == [1, 1]


def test_a_blob_that_is_about_to_be_swept_is_not_relied_on(both: Store, tmp_path: Path):
    put_tree(both, tmp_path / "in", {"a": LARGE})
    (old,) = blobs_on_disk(both)
    row = {"path": str(old), "bytes": len(LARGE), "found_at": both.db.now()}
    both.db.write(lambda connection: connection.execute(schema.garbage.insert().values(**row)))
    put_tree(both, tmp_path / "other", {"b": LARGE, "c": LARGE})
    (new,) = set(blobs_on_disk(both)) - {old}
    assert new.name.startswith(old.name + "-")
    assert blobs.find_damage(both, f".blobs/{new.parent.name}/{new.name}") is None
    old.unlink()
    assert contents(both, tmp_path / "out", "[bc]") == {"b": LARGE, "c": LARGE}


def test_a_truncated_blob_is_not_relied_on(store: Store, tmp_path: Path):
    put_tree(store, tmp_path / "in", {"a": LARGE})
    (old,) = blobs_on_disk(store)
    os.truncate(old, 10)
    put_tree(store, tmp_path / "other", {"b": LARGE})
    assert contents(store, tmp_path / "out", "b") == {"b": LARGE}
    assert blobs.find_damage(store, f".blobs/{old.parent.name}/{old.name}") == "does not match its sha256"


def test_damage_is_told(store: Store):
    assert blobs.find_damage(store, "../x") == "is not a blob of this lake"
    assert blobs.find_damage(store, blobs.blob_name("0" * 64)) == "is gone"


@pytest.mark.parametrize("action", ["error", "enospc"])
@pytest.mark.parametrize("point", ["files.blob_written", "write.bytes"])
def test_a_failed_upload_leaves_nothing(store: Store, tmp_path: Path, monkeypatch, point, action):
    folder = tree(tmp_path / "in", {"a": LARGE})
    before = store.commit()
    tables_before = dict(store.state())
    from runnel import failpoint

    failpoint._passed.clear()
    monkeypatch.setattr("runnel.lake.files.put.stage_file_table", _created(store))
    monkeypatch.setenv("RUNNEL_FAIL", f"{point}:{action}")
    with pytest.raises(OSError):
        put_files(store, DOCS, [folder])
    monkeypatch.delenv("RUNNEL_FAIL")
    assert blobs_on_disk(store) == [] and store.commit() == before and store.state() == tables_before


def _created(store: Store):
    """Return a maker of the table that has written its metadata already, so that the blob is what is written next."""
    from runnel.lake.files.file_table import stage_file_table

    made = stage_file_table(store, DOCS)
    return lambda *given: made


KILLED = ["files.blob_written", "files.blob_in_place", "files.before_publish"]
CODE = """
import sys
from pathlib import Path
from runnel.lake.files.put import put_files
from runnel.lake.store import Store
from runnel.names import TableName
store = Store.open(sys.argv[1], sys.argv[2])
put_files(store, TableName("ods", "docs"), [Path(sys.argv[3])])
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", KILLED)
def test_a_killed_put_leaves_all_or_nothing_and_can_be_repeated(store: Store, tmp_path: Path, point):
    put_tree(store, tmp_path / "in", {"a": LARGE, "b": "b"})
    before = store.commit()
    tree(tmp_path / "in", {"a": LARGE + b"2", "b": "2"})
    arguments = [str(store.db.url), store.warehouse, str(tmp_path / "in")]
    environment = os.environ | {"RUNNEL_FAIL": f"{point}:kill"}
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], env=environment, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert store.commit() == before
    assert contents(store, tmp_path / "out") == {"a": LARGE, "b": b"b"}
    put_files(store, DOCS, [tmp_path / "in"])
    assert contents(store, tmp_path / "again") == {"a": LARGE + b"2", "b": b"2"}
