"""Sources without files: on the first day, and after files were removed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def project(cli: Run, tmp_path: Path) -> Callable[[str], None]:
    """Return a function that declares a source of the files in data/, with more options."""
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()

    def declare(options: str) -> None:
        text = f'rn.source("ods.x", rn.files("data/*.csv", schema="id long, v string"{options}))'
        (tmp_path / "flows" / "a.py").write_text(f"import runnel as rn\n{text}\n")

    return declare


def test_a_source_that_may_be_empty(cli: Run, project: Callable[[str], None], tmp_path: Path) -> None:
    project("")
    refused = cli("run")
    assert refused.code == 2
    assert (
        "SOURCE_NO_FILES: ods.x has nothing to read: no file matches 'data/*.csv'; the folder data is empty"
        in refused.err
    )
    assert "if there may be no file yet, rn.files(..., may_be_empty=True) creates a table without rows" in refused.err
    project(", may_be_empty=True")
    planned = cli("plan")
    assert "no files yet: a table without rows" in planned.out
    done = cli("run")
    assert done.code == 0, done.err
    assert cli("query", "select id, v from ods.x", "--json").json["rows"] == []
    assert cli("run", "--json").json["commit"] is None
    (tmp_path / "data" / "a.csv").write_text("id,v\n1,a\n")
    assert cli("run").code == 0
    assert cli("query", "select id, v from ods.x", "--json").json["rows"] == [[1, "a"]]


def test_the_option_does_not_change_how_files_are_read(
    cli: Run, project: Callable[[str], None], tmp_path: Path
) -> None:
    project("")
    (tmp_path / "data" / "a.csv").write_text("id,v\n1,a\n")
    assert cli("run").code == 0
    project(", may_be_empty=True")
    assert cli("run", "--json").json["commit"] is None


def test_may_be_empty_needs_a_schema(cli: Run, project: Callable[[str], None], tmp_path: Path) -> None:
    project("")
    (tmp_path / "flows" / "a.py").write_text(
        'import runnel as rn\nrn.source("ods.x", rn.files("data/*.parquet", may_be_empty=True))\n'
    )
    assert "`may_be_empty` needs a schema" in cli("validate").err
    (tmp_path / "flows" / "a.py").write_text(
        'import runnel as rn\nrn.source("ods.x", rn.files("data/*.csv", schema="infer", may_be_empty=True))\n'
    )
    assert "`may_be_empty` needs a schema" in cli("validate").err


def test_a_change_log_that_may_be_empty(cli: Run, project: Callable[[str], None], tmp_path: Path) -> None:
    project("")
    files = 'rn.files("data/*.csv", schema="id long, at long", may_be_empty=True)'
    (tmp_path / "flows" / "a.py").write_text(
        f'import runnel as rn\nrn.source("ods.x", rn.changes({files}, key="id", sequence_by="at"))\n'
    )
    assert "ods.x ~ingest ods.x__changes: no files yet" in " ".join(cli("plan").out.split())
    assert cli("run").code == 0
    assert cli("query", "select id from ods.x", "--json").json["rows"] == []
    (tmp_path / "data" / "a.csv").write_text("id,at\n1,1\n")
    assert cli("run").code == 0
    assert cli("query", "select id from ods.x", "--json").json["rows"] == [[1]]


def test_a_file_that_is_gone_is_mentioned(cli: Run, project: Callable[[str], None], tmp_path: Path) -> None:
    project("")
    for name in ("a", "b", "c"):
        (tmp_path / "data" / f"{name}.csv").write_text(f"id,v\n1,{name}\n")
    cli("run")
    (tmp_path / "data" / "a.csv").unlink()
    (tmp_path / "data" / "b.csv").rename(tmp_path / "data" / "d.csv")
    note = '1 file is gone; its rows stay (removed="keep")'
    assert note in " ".join(cli("plan").out.split())
    ran = cli("run")
    assert note in " ".join((ran.out + ran.err).split())
    assert len(cli("query", "select id, v from ods.x", "--json").json["rows"]) == 3
    ran = cli("run")
    assert note in " ".join((ran.out + ran.err).split())
    project(', removed="delete"')
    assert note not in " ".join(cli("plan").out.split())
