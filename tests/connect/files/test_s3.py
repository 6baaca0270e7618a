"""Files in an object store that speaks S3: the whole way from a project's settings to rows."""

import gzip
import json
from pathlib import Path

import pytest

from runnel.connect.files.object_stores import MAX_CONCURRENT_REQUESTS
from runnel.errors import RunnelError
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import run_project
from runnel.run.results.run_result import Event
from tests.faults.tcp_proxy import Proxy
from tests.run.project import Project, did
from tests.servers.s3 import SECRET, Store

FLOW = 'rn.source("ods.o", rn.files("s3://{glob}", format="csv", schema="id long"){options})\n'


def shop(folder: Path, s3: Store, glob: str, options: str = "", **storage: str) -> Project:
    project = Project(folder)
    said = "\n".join(f'"{key}" = {json.dumps(value)}' for key, value in {**s3.storage, **storage}.items())
    project.write("runnel.toml", f'[project]\nname = "shop"\n[lake.storage]\n{said}\n')
    project.flow(FLOW.format(glob=f"{s3.bucket}/{glob}", options=options), orders=None)
    return project


def test_objects_are_read_once_and_again_when_they_change(tmp_path: Path, s3: Store) -> None:
    project = shop(tmp_path, s3, "in/**/*.csv*")
    s3.put("in/a.csv", b"id\n1\n")
    s3.put("in/day=1/b.csv.gz", gzip.compress(b"id\n2\n"))
    s3.put("in/c.txt", b"nothing")
    assert did(project.run()) == {"ods.o": "ingest"}
    assert did(project.run()) == {}
    s3.put("in/d.csv", b"id\n4\n")
    s3.put("in/a.csv", b"id\n10\n")
    [step] = project.run().steps
    assert (step.reason, step.rows) == ("1 new file, 1 changed", 2)
    assert project.rows("ods.o") == [(10,), (2,), (4,)]


def test_a_cut_off_object_is_set_aside(tmp_path: Path, s3: Store) -> None:
    project = shop(tmp_path, s3, "cut/*", ', on_bad="quarantine"')
    s3.put("cut/a.csv.gz", gzip.compress(b"id\n1\n" * 999)[:-9])
    s3.put("cut/b.csv", b"id\n2\n")
    project.run()
    assert project.rows("ods.o") == [(2,)]
    [(raw, reason, file, *_)] = project.rows("quarantine.ods_o")
    assert raw is None
    assert file == f"s3://{s3.bucket}/cut/a.csv.gz"
    assert "not a complete gzip file: it ends too early" in reason
    assert did(project.run()) == {}


def test_wrong_keys_are_told_without_them(tmp_path: Path, s3: Store) -> None:
    project = shop(tmp_path, s3, "in/*.csv", **{"s3.secret-access-key": "another-secret"})
    with pytest.raises(RunnelError) as raised:
        project.plan()
    assert raised.value.code == "SOURCE_STORE"
    assert "[lake.storage]" in (raised.value.fix or "")
    assert "another-secret" not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_many_objects_come_at_once_over_connections_that_stay(tmp_path: Path, s3: Store) -> None:
    proxy = Proxy(s3.port)
    project = shop(tmp_path, s3, "many/*.csv", **{"s3.endpoint": f"http://127.0.0.1:{proxy.port}"})
    for number in range(50):
        s3.put(f"many/{number}.csv", f"id\n{number}\n".encode())
    told: list[tuple[int, int | None]] = []

    def watch(event: Event) -> None:
        if event.text == "fetching objects":
            told.append((event.done, event.total))

    with project.open() as lake:
        assert not run_project(lake, RunRequest(), watch=watch).errors
    assert sorted(project.rows("ods.o")) == [(number,) for number in range(50)]
    assert told == [(number, 50) for number in range(1, 51)]
    assert proxy.connections <= MAX_CONCURRENT_REQUESTS + 1
    s3.put("many/50.csv", b"id\n50\n")
    before = proxy.connections
    assert did(project.run()) == {"ods.o": "ingest"} and proxy.connections == before
    proxy.close()
