"""Rows that were set aside are shown, and go through again once they or their source are right."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from runnel.errors import RunnelError
from runnel.project.execution.release import format_quarantined_rows
from tests.run.project import Project, did


def flow(project: Project) -> None:
    project.write(
        "flows/flow.py",
        'import runnel as rn\nrn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, amount long"),'
        ' on_bad="quarantine")\n',
    )


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """Two files, of which one has two bad rows."""
    project = Project(tmp_path)
    flow(project)
    project.write("data/orders/a.csv", "id,amount\n1,5\n2,five\n3,six\n")
    project.write("data/orders/b.csv", "id,amount\n4,7\n")
    project.run()
    return project


def rows(project: Project) -> list[tuple[object, ...]]:
    return sorted(project.rows("ods.orders"))


def test_corrected_rows_take_the_place_of_those_aside(shop: Project) -> None:
    shop.write("right.csv", "id,amount\n2,5\n3,6\n")
    with shop.open() as lake:
        done = lake.release("ods.orders", shop.root / "right.csv")
    assert (done.rows, done.accepted, done.bad) == (2, 2, 0)
    assert rows(shop) == [(1, 5), (2, 5), (3, 6), (4, 7)]
    assert shop.rows("quarantine.ods_orders") == []
    assert did(shop.run()) == {}


def test_every_bad_row_of_a_file_with_line_breaks_in_values_is_released(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        "flows/flow.py",
        'import runnel as rn\nrn.source("ods.orders", rn.files("data/*.csv", schema="ts long, msg string"),'
        ' on_bad="quarantine")\n',
    )
    project.write("data/c.csv", 'ts,msg\n1,"a\nb"\nx,e\n2,x,y\n3,ok\n')
    project.run()
    with project.open() as lake:
        lines = format_quarantined_rows(lake, "ods.orders", lake.quarantine("ods.orders"))
        assert lines == ["quarantined_row,ts,msg", "data/c.csv:4,x,e", "data/c.csv:5,2,x,y"]
        project.write("right.csv", "\n".join(lines).replace("x,e", "4,e").replace("x,y", "xy"))
        assert lake.release("ods.orders", project.root / "right.csv").accepted == 2
    assert rows(project) == [(1, "a\nb"), (2, "xy"), (3, "ok"), (4, "e")]


def test_what_is_still_bad_stays(shop: Project) -> None:
    shop.write("right.jsonl", '{"id": 2, "amount": 5}\n{"id": 3, "amount": "seven"}\n')
    with shop.open() as lake:
        done = lake.release("quarantine.ods_orders", shop.root / "right.jsonl")
    assert (done.accepted, done.bad) == (1, 1)
    assert rows(shop) == [(1, 5), (2, 5), (4, 7)]
    assert ["seven" in row[0] for row in shop.rows("quarantine.ods_orders")] == [True]


def test_rows_as_they_are_go_through_once_their_source_takes_them(tmp_path: Path) -> None:
    project = Project(tmp_path)
    rows_of = 'return [{"id": 1, "n": 5}, {"id": 2, "n": 3000000000}] if state is None else [], {"done": 1}'
    text = '@rn.source("ods.n", schema="id long, n %s", on_bad="quarantine")\ndef n(state):\n    ' + rows_of
    project.flow(text % "int", orders=None)
    project.run()
    assert project.rows("ods.n") == [(1, 5)]
    project.flow(text % "long", orders=None)
    with project.open() as lake:
        assert lake.release("ods.n").accepted == 1
    assert sorted(project.rows("ods.n")) == [(1, 5), (2, 3000000000)]
    assert project.rows("quarantine.ods_n") == []


def zip_archive(contents: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("orders.csv", contents)
    return archive.getvalue()


def zstandard(contents: bytes) -> bytes:
    return pa.compress(contents, codec="zstd", asbytes=True)


HEADERS: dict[str, tuple[str, str, str, Callable[[bytes], bytes]]] = {
    "lines before it": ("a.csv", "skip=2", "made by a till\n\namount,id\n{}", bytes),
    "comments before it": ("a.csv", 'comment="#"', "# made by a till\namount,id\n{}", bytes),
    "tabs": ("a.tsv", "", "amount\tid\n{}", bytes),
    "another encoding": ("a.csv", 'encoding="utf-16"', "amount,id\n{}", lambda text: text.decode().encode("utf-16")),
    "gzip": ("a.csv.gz", "", "amount,id\n{}", gzip.compress),
    "Zstandard": ("a.csv.zst", "", "amount,id\n{}", zstandard),
    "bzip2": ("a.csv.bz2", "skip=1", "made by a till\namount,id\n{}", bz2.compress),
    "xz": ("a.csv.xz", "", "amount,id\n{}", lzma.compress),
    "zip": ("a.csv.zip", "", "amount,id\n{}", zip_archive),
}


@pytest.mark.parametrize(("name", "options", "text", "pack"), HEADERS.values(), ids=HEADERS)
def test_rows_as_they_are_are_read_by_the_header_of_their_file(
    tmp_path: Path, name: str, options: str, text: str, pack: Callable[[bytes], bytes]
) -> None:
    def declare(amount: str) -> None:
        project.write(
            "flows/flow.py",
            f"import runnel as rn\nrn.source('ods.orders', rn.files('data/{name}', format='csv', "
            f"schema='id long, amount {amount}', {options}), on_bad='quarantine')\n",
        )

    project = Project(tmp_path)
    declare("int")
    lines = ["5,1", "3000000000,2", "4000000000,3"]
    contents = text.format("".join(f"{line}\n" for line in lines))
    path = tmp_path / "data" / name
    path.parent.mkdir()
    path.write_bytes(pack((contents.replace(",", "\t") if name.endswith("tsv") else contents).encode()))
    project.run()
    assert rows(project) == [(1, 5)]
    declare("long")
    with project.open() as lake:
        done = lake.release("ods.orders")
    assert (done.accepted, done.bad) == (2, 0)
    assert rows(project) == [(1, 5), (2, 3000000000), (3, 4000000000)]
    assert project.rows("quarantine.ods_orders") == []


def test_corrected_rows_have_no_lines_to_skip(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        "flows/flow.py",
        "import runnel as rn\nrn.source('ods.orders', rn.files('data/*.csv', schema='id long, amount long', skip=2), "
        "on_bad='quarantine')\n",
    )
    project.write("data/a.csv", "made by a till\n\nid,amount\n1,5\n2,five\n3,six\n")
    project.run()
    project.write("right.csv", "id,amount\n2,5\n3,6\n")
    with project.open() as lake:
        assert lake.release("ods.orders", tmp_path / "right.csv").accepted == 2
    assert rows(project) == [(1, 5), (2, 5), (3, 6)]


def test_released_rows_go_when_their_file_changes(shop: Project) -> None:
    shop.write("right.csv", "id,amount\n2,5\n3,6\n")
    with shop.open() as lake:
        lake.release("ods.orders", shop.root / "right.csv")
    shop.write("data/orders/a.csv", "id,amount\n1,5\n2,55\n3,66\n")
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert rows(shop) == [(1, 5), (2, 55), (3, 66), (4, 7)]
    assert shop.rows("quarantine.ods_orders") == []


def test_mistakes_are_told(shop: Project) -> None:
    shop.write("data/orders/c.csv", "id,amount\n9,x\n")
    shop.run()
    shop.write("right.csv", "id,amount\n2,5\n")
    with shop.open() as lake:
        for table, corrected, file, told in (
            ("ods.ordres", None, None, "close: `ods.orders`"),
            ("ods.orders", "right.csv", None, "RELEASE_FILES"),
            ("ods.orders", "nope.csv", "data/orders/c.csv", "RELEASE_NO_FILE"),
            ("ods.orders", None, "data/orders/b.csv", "RELEASE_NOTHING"),
        ):
            with pytest.raises(RunnelError) as error:
                lake.release(table, shop.root / corrected if corrected else None, file=file)
            assert told in str(error.value)


def test_corrected_rows_of_several_files_stay_rows_of_their_files(tmp_path: Path) -> None:
    """Also if the files have their columns in another order, and if a row is corrected in two goes."""
    project = Project(tmp_path)
    project.write(
        "flows/flow.py",
        'import runnel as rn\nrn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, amount long", '
        'removed="delete"), on_bad="quarantine")\n',
    )
    project.write("data/orders/a.csv", "id,amount\n1,five\n2,six\n")
    project.write("data/orders/b.csv", 'amount,id\n7,3\nseven,4\neight,5\n"9,6\n')
    project.run()
    with project.open() as lake:
        lines = format_quarantined_rows(lake, "ods.orders", lake.quarantine("ods.orders"))
        assert lines == [
            "quarantined_row,id,amount",
            "data/orders/a.csv:2,1,five",
            "data/orders/a.csv:3,2,six",
            "data/orders/b.csv:3,4,seven",
            "data/orders/b.csv:4,5,eight",
            'data/orders/b.csv:5,"""9,6"',
        ]
        text = "\r\n".join([lines[0], *reversed(lines[1:])]) + "\r\n"
        project.write("bad.csv", text.replace("five", "5").replace("seven", "7").replace("eight", "ate"))
        result = lake.release("ods.orders", project.root / "bad.csv")
        assert (result.rows, result.accepted, result.bad) == (5, 2, 3)
        assert [(bad.line, bad.row.raw, bad.row.reason) for bad in result.still_bad] == [
            (2, '"9,6', "data/orders/b.csv, line 5: a quote is not closed, or text follows a closing quote"),
            (3, "ate,5", "data/orders/b.csv, line 4, column `amount`: 'ate': not a long"),
            (5, "2,six", "data/orders/a.csv, line 3, column `amount`: 'six': not a long"),
        ]
        rows_by_place = {row.place: row.raw for row in lake.quarantine("ods.orders")}
        assert rows_by_place == {
            "data/orders/b.csv, line 5": '"9,6',
            "data/orders/b.csv, line 4": "ate,5",
            "data/orders/a.csv, line 3": "2,six",
        }
        project.write("bad.csv", text.replace("six", "6").replace("eight", "8").replace('"""9,6"', "6,9"))
        result = lake.release("ods.orders", project.root / "bad.csv")
        assert (result.rows, result.accepted, result.bad, result.unknown) == (3, 3, 0, 2)
    assert rows(project) == [(1, 5), (2, 6), (3, 7), (4, 7), (5, 8), (6, 9)]
    (project.root / "data/orders/b.csv").unlink()
    project.run()
    assert rows(project) == [(1, 5), (2, 6)]


LAYOUTS = {
    "semicolons of a spreadsheet": ('"quarantined_row";"id";"amount"\n"data/a.csv:3";"2";"5"\n', ""),
    "columns in another order": ("quarantined_row,amount,id\ndata/a.csv:3,5,2\n", ""),
    "declared delimiter": ("quarantined_row|id|amount\ndata/a.csv:3|2|5\n", 'delimiter="|"'),
    "no header": ("quarantined_row,id,amount\ndata/a.csv:3,2,5\n", "header=False"),
    "lines to skip": ("quarantined_row,id,amount\ndata/a.csv:3,2,5\n", "skip=1"),
}


@pytest.mark.parametrize(("corrected", "options"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_corrected_file_is_read_as_it_was_saved(tmp_path: Path, corrected: str, options: str) -> None:
    project = Project(tmp_path)
    project.write(
        "flows/flow.py",
        f"import runnel as rn\nrn.source('ods.orders', rn.files('data/*.csv', schema='id long, amount long', {options}"
        "), on_bad='quarantine')\n",
    )
    first_lines = {"header=False": "0,0\n1,5\n", "skip=1": "made by a till\nid,amount\n"}
    text = first_lines.get(options, "id,amount\n1,5\n") + "2,five\n"
    project.write("data/a.csv", text.replace(",", "|") if "delimiter" in options else text)
    project.run()
    project.write("bad.csv", corrected)
    with project.open() as lake:
        assert lake.release("ods.orders", tmp_path / "bad.csv").accepted == 1
    assert (2, 5) in rows(project)
    assert project.rows("quarantine.ods_orders") == []


def test_corrected_json_rows_of_several_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        "flows/flow.py",
        'import runnel as rn\nrn.source("ods.orders", rn.files("data/*.jsonl", schema="id long, amount long"),'
        ' on_bad="quarantine")\n',
    )
    project.write("data/a.jsonl", '{"id": 1, "amount": "five"}\n{"id": 2, "amount": }\n')
    project.write("data/b.jsonl", '{"id": 3, "amount": 6}\nsix\n')
    project.run()
    with project.open() as lake:
        lines = format_quarantined_rows(lake, "ods.orders", lake.quarantine("ods.orders"))
        assert lines == [
            '{"quarantined_row": "data/a.jsonl:1", "id": 1, "amount": "five"}',
            '{"quarantined_row": "data/a.jsonl:2", "id": 2, "amount": }',
            '{"quarantined_row": "data/b.jsonl:2", "raw": "six"}',
        ]
        project.write("bad.jsonl", "\n".join(lines).replace('"five"', "5") + "\n")
        result = lake.release("ods.orders", project.root / "bad.jsonl")
        assert [(bad.line, bad.row.place) for bad in result.still_bad] == [
            (2, "data/a.jsonl, line 2"),
            (3, "data/b.jsonl, line 2"),
        ]
        corrected = "\n".join(lines).replace("}", "4}").replace('"raw": "six"4', '"id": 4, "amount": 6')
        project.write("bad.jsonl", corrected.replace('"five"4', '"five"') + "\n")
        assert lake.release("ods.orders", project.root / "bad.jsonl").accepted == 2
    assert rows(project) == [(1, 5), (2, 4), (3, 6), (4, 6)]


def test_discarded_rows_return_with_a_revert(shop: Project) -> None:
    with shop.open() as lake:
        before = lake.quarantine("ods.orders")
        result = lake.discard("ods.orders", file="a.csv")
        assert (result.rows, result.commit.message) == (2, "discard 2 quarantined rows of ods.orders")
        assert lake.quarantine("ods.orders") == []
        assert did(shop.run()) == {}
        lake.revert("main")
        assert lake.quarantine("ods.orders") == before
        with pytest.raises(RunnelError, match=r"no row of c\.csv of `ods\.orders` is set aside on branch `main`"):
            lake.discard("ods.orders", file="c.csv")
    assert rows(shop) == [(1, 5), (4, 7)]
