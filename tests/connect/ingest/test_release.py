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
