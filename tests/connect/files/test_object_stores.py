"""Files in an object store: listed by size and time, brought here when they are read."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runnel.connect.ingest.detect.object_listing import glob_to_regex
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.errors import RunnelError, Unreachable
from tests.connect.ingest.file_source import Ingesting
from tests.run.project import Project, did


@pytest.fixture
def away(ods: Ingesting) -> Ingesting:
    """Return a source whose files are reached by addresses, as those of an object store are."""
    glob = f"file://{ods.root}/data/**/*.csv"
    ods.source = replace(ods.source, origin=Files(glob, "csv", parse_columns("id long, name string")))
    return ods


def paths(ods: Ingesting) -> list[str]:
    return [arrival.path.rpartition("/data/")[2] for arrival in ods.run().files_to_read]


def test_objects_come_change_and_go(away: Ingesting) -> None:
    away.write("a.csv", "id,name\n1,a\n")
    away.write("deep/b.csv", "id,name\n2,b\n")
    away.write("other.txt", "nothing")
    away.write("_tmp/c.csv", "nothing")
    assert paths(away) == ["a.csv", "deep/b.csv"]
    assert away.rows == [(1, "a"), (2, "b")]
    assert all(path.startswith("file:///") for path in away.seen)
    assert paths(away) == []
    away.write("a.csv", "id,name\n3,c\n")
    os.utime(away.root / "data/a.csv", (5, 5))
    assert paths(away) == ["a.csv"]
    assert away.rows == [(2, "b"), (3, "c")]
    away.declare("v1", removed="delete")
    (away.root / "data/deep/b.csv").unlink()
    away.run()
    assert away.rows == [(3, "c")]


def test_an_object_is_not_brought_here_to_see_whether_it_is_new(
    away: Ingesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    away.write("a.csv", "id,name\n1,a\n")
    away.run()
    monkeypatch.setattr("runnel.connect.ingest.detect.object_listing.download", None)
    monkeypatch.setattr("runnel.connect.ingest.detect.digests.compute_digest", None)
    assert away.run().is_empty


def test_a_cut_off_object_is_set_aside(away: Ingesting) -> None:
    import gzip

    origin = replace(away.source.origin, glob=f"file://{away.root}/data/*")
    away.source = replace(away.source, origin=origin, on_bad="quarantine")
    away.write("a.csv.gz", gzip.compress(b"id,name\n1,a\n" * 500)[:-9])
    away.write("b.csv", "id,name\n2,b\n")
    away.run()
    assert away.rows == [(2, "b")]
    assert "not a complete gzip file" in away.done.unread_reasons[0]


def test_a_project_reads_objects(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow(f'rn.source("ods.o", rn.files("file://{tmp_path}/in/*.csv", schema="id long"))', orders=None)
    with pytest.raises(RunnelError, match="no object matches"):
        project.plan()
    project.write("in/a.csv", "id\n1\n")
    assert did(project.run()) == {"ods.o": "ingest"}
    assert did(project.run()) == {}
    assert project.rows("ods.o") == [(1,)]


def test_a_store_that_does_not_answer(ods: Ingesting) -> None:
    from runnel.connect.ingest.detect.object_listing import list_objects

    storage = {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "someone", "s3.secret-access-key": "hunter22"}
    with pytest.raises(Unreachable) as raised:
        list_objects("s3://bucket/a/*.csv", {**storage, "s3.region": "x", "s3.connect-timeout": "1"})
    assert "hunter22" not in str(raised.value)
    assert "s3://bucket/a/*.csv" in raised.value.what


GLOBS = {
    ("b/*.csv", "b/a.csv"): True,
    ("b/*.csv", "b/c/a.csv"): False,
    ("b/**/*.csv", "b/a.csv"): True,
    ("b/**/*.csv", "b/c/d/a.csv"): True,
    ("b/**", "b/c/d"): True,
    ("b/day=?/[ab].csv", "b/day=1/a.csv"): True,
    ("b/[!ab].csv", "b/a.csv"): False,
    ("b/a+.csv", "b/aa.csv"): False,
}


@pytest.mark.parametrize(("case", "matches"), GLOBS.items(), ids=map(str, GLOBS))
def test_globs(case: tuple[str, str], matches: bool) -> None:
    import re

    assert bool(re.fullmatch(glob_to_regex(case[0]), case[1])) == matches
