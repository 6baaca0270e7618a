"""Files in an object store that speaks S3: the whole way from a project's settings to rows."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.errors import RunnelError
from tests.run.project import Project, did
from tests.s3 import SECRET, Store

FLOW = 'rn.source("ods.o", rn.files("s3://{glob}", format="csv", schema="id long"){options})\n'


@pytest.fixture(scope="module")
def bucket() -> Iterator[Store]:
    """Start an object store."""
    with Store() as store:
        yield store


def shop(folder: Path, bucket: Store, glob: str, options: str = "", **storage: str) -> Project:
    project = Project(folder)
    said = "\n".join(f'"{key}" = {json.dumps(value)}' for key, value in {**bucket.storage, **storage}.items())
    project.write("runnel.toml", f'[project]\nname = "shop"\n[lake.storage]\n{said}\n')
    project.flow(FLOW.format(glob=f"{bucket.bucket}/{glob}", options=options), orders=None)
    return project


def test_objects_are_read_once_and_again_when_they_change(tmp_path: Path, bucket: Store) -> None:
    project = shop(tmp_path, bucket, "in/**/*.csv*")
    bucket.put("in/a.csv", b"id\n1\n")
    bucket.put("in/day=1/b.csv.gz", gzip.compress(b"id\n2\n"))
    bucket.put("in/c.txt", b"nothing")
    assert did(project.run()) == {"ods.o": "ingest"}
    assert did(project.run()) == {}
    bucket.put("in/d.csv", b"id\n4\n")
    bucket.put("in/a.csv", b"id\n10\n")
    [step] = project.run().steps
    assert (step.reason, step.rows) == ("1 new file, 1 changed", 2)
    assert project.rows("ods.o") == [(10,), (2,), (4,)]


def test_a_cut_off_object_is_set_aside(tmp_path: Path, bucket: Store) -> None:
    project = shop(tmp_path, bucket, "cut/*", ', on_bad="quarantine"')
    bucket.put("cut/a.csv.gz", gzip.compress(b"id\n1\n" * 999)[:-9])
    bucket.put("cut/b.csv", b"id\n2\n")
    project.run()
    assert project.rows("ods.o") == [(2,)]
    [(raw, reason, file, *_)] = project.rows("quarantine.ods_o")
    assert raw is None
    assert file == f"s3://{bucket.bucket}/cut/a.csv.gz"
    assert "not a whole gzip file: it ends too early" in reason
    assert did(project.run()) == {}


def test_wrong_keys_are_told_without_them(tmp_path: Path, bucket: Store) -> None:
    project = shop(tmp_path, bucket, "in/*.csv", **{"s3.secret-access-key": "another-secret"})
    with pytest.raises(RunnelError) as raised:
        project.plan()
    assert raised.value.code == "SOURCE_STORE"
    assert "[lake.storage]" in (raised.value.fix or "")
    assert "another-secret" not in str(raised.value)
    assert SECRET not in str(raised.value)
