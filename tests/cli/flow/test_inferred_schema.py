"""`schema="infer"`: the first run settles the types, later files have to fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
FLOW = 'import runnel as rn\nrn.source("ods.x", rn.files("data/*.{ending}", schema="infer"{options}))\n'

FILES = {
    "CSV": ("csv", "", b"id,day\n1,2026-01-02\n", [["id", "long"], ["day", "date"]]),
    "CSV without a header": ("csv", ", header=False", b"1,x\n", [["c1", "long"], ["c2", "string"]]),
    "JSON lines": ("jsonl", "", b'{"id": 1, "v": 1.5}\n', [["id", "long"], ["v", "double"]]),
    "XML": ("xml", "", b"<r><o><id>1</id></o></r>", [["id", "string"]]),
}


@pytest.fixture
def declare(cli: Run, tmp_path: Path) -> Callable[[str, str], None]:
    """Return a function that declares files of an ending, with more options."""
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()
    return lambda ending, options: (tmp_path / "flows" / "a.py").write_text(FLOW.format(ending=ending, options=options))


@pytest.mark.parametrize(("ending", "options", "contents", "expected"), FILES.values(), ids=FILES)
def test_types(
    cli: Run, declare: Run, tmp_path: Path, ending: str, options: str, contents: bytes, expected: Any
) -> None:
    declare(ending, options)
    (tmp_path / "data" / f"a.{ending}").write_bytes(contents)
    done = cli("run")
    assert done.code == 0, done.err
    columns = cli("table", "ods.x", "--json").json["columns"]
    assert [[column["name"], column["type"]] for column in columns] == expected
    assert cli("run").out == "nothing to do: 1 skipped\n"


def test_later_files_have_to_fit(cli: Run, declare: Run, tmp_path: Path) -> None:
    declare("csv", "")
    (tmp_path / "data" / "a.csv").write_text("id,v\n1,2\n")
    assert cli("run").code == 0
    (tmp_path / "data" / "b.csv").write_text("id,v\n2,2.5\n")
    refused = cli("run")
    assert refused.code == 1
    assert "data/b.csv, line 2, column `v`: '2.5': not a long" in refused.err
    assert (
        'on_bad="drop" or on_bad="quarantine" in rn.source; the first run settled the types (schema="infer"): '
        "if a type is wrong, declare schema=, and all files are read again\n"
    ) in refused.err
    (tmp_path / "data" / "b.csv").write_text("id,w\n007,x\n")
    assert cli("run").code == 0
    rows = cli("query", "select id, v, w from ods.x order by id", "--json").json["rows"]
    assert rows == [[1, 2, None], [7, None, "x"]]


def test_a_file_that_needs_options_names_all_of_them(cli: Run, declare: Run, tmp_path: Path) -> None:
    declare("csv", "")
    (tmp_path / "data" / "a.csv").write_bytes("id;betrag;ort\n1;1.234,50;Köln\n".encode("cp1252"))
    options = 'encoding="cp1252", delimiter=";", decimal=",", thousands="."'
    assert f"  at data/a.csv:1\n  fix: add {options} to rn.files\n" in cli("run").err
    declare("csv", f", {options}")
    assert cli("run").code == 0
    assert cli("query", "select * from ods.x", "--json").json["rows"] == [[1, 1234.5, "Köln"]]


def test_an_empty_first_file(cli: Run, declare: Run, tmp_path: Path) -> None:
    declare("csv", "")
    (tmp_path / "data" / "a.csv").write_text("")
    refused = cli("run")
    assert refused.code == 1
    assert "SOURCE_NO_COLUMNS" in refused.err


FIRST_RUNS = {
    "dates": (
        b"id,day\n1,03/04/2025\n",
        'data/a.csv seems to need date_format="dd/MM/yyyy" in rn.files; '
        "if the month comes first, exchange day and month",
    ),
    "a text among numbers": (
        b"id,qty\n" + b"1,2\n" * 150 + b"2,five\n",
        "`qty` is string because of 'five' (line 152): "
        'qty long in schema= of rn.files and on_bad="quarantine" in rn.source set the row aside',
    ),
    "a total": (
        b"region,month,units\nNorth,2025-10,1\nSouth,2025-11,2\nTotal,,3\n",
        "the last line looks like a total, `Total,,3`: "
        'schema="region string, month string not null, units long" in rn.files with on_bad="drop" in rn.source '
        "leaves it out",
    ),
}


@pytest.mark.parametrize(("contents", "warning"), FIRST_RUNS.values(), ids=FIRST_RUNS)
def test_the_first_run_warns_of_what_the_files_seem_to_need(
    cli: Run, declare: Run, tmp_path: Path, contents: bytes, warning: str
) -> None:
    declare("csv", "")
    (tmp_path / "data" / "a.csv").write_bytes(contents)
    assert f"warning: ods.x: {warning}\n" in cli("run").err
    (tmp_path / "data" / "b.csv").write_bytes(contents)
    assert "warning" not in cli("run").err


def test_bad_rows_in_the_first_run(cli: Run, declare: Run, tmp_path: Path) -> None:
    """No run has settled the types yet."""
    declare("csv", "")
    (tmp_path / "data" / "a.csv").write_text("id,v\n1,2\n3\n4,5\n6,7\n")
    refused = cli("run")
    assert "data/a.csv, line 3: expected 2 columns, found 1" in refused.err
    assert 'on_bad="drop" or on_bad="quarantine" in rn.source\n' in refused.err


def test_no_file_yet(cli: Run, declare: Run, tmp_path: Path) -> None:
    """The fix names the schema, too, without which `may_be_empty` is refused."""
    declare("csv", "")
    options = 'may_be_empty=True, schema="order_id long, day date"'
    assert f"rn.files(..., {options}) with your columns creates a table without rows" in cli("run").err
    flow = tmp_path / "flows" / "a.py"
    flow.write_text(flow.read_text().replace('schema="infer"', options))
    assert cli("run").code == 0
