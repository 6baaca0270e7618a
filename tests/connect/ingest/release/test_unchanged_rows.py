"""Quarantined rows are released as they are in this process and in units: with the same rows, places and owners."""

from dataclasses import replace

import pytest

from runnel.connect.ingest.release import release_units
from runnel.connect.ingest.release.release import ReleaseResult, release_unchanged_rows
from runnel.connect.load.quarantine import read_quarantined_rows
from runnel.errors import Mistake
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.upkeep.fsck.fsck import fsck
from tests.connect.ingest.file_source import ORDERS, Ingesting
from tests.lake.pickling_runner import PicklingRunner

LARGE = 3_000_000_000  # no int


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each unit read one data file of the quarantine table."""
    monkeypatch.setattr(release_units, "UNIT_BYTES", 1)


def ingest_as_int(ods: Ingesting, files: dict[str, str], **options: str) -> None:
    """Ingest files with ids that an int can't hold; then the source declares a long."""
    if options:
        ods.source = replace(ods.source, origin=replace(ods.source.origin, options=tuple(options.items())))
    ods.declare("v1", schema="id int, name string", on_bad="quarantine")
    for name, text in files.items():
        ods.write(name, text)
    ods.run()
    ods.declare("v2", schema="id long, name string")


def release(ods: Ingesting, file: str | None = None) -> ReleaseResult:
    return release_unchanged_rows(ods.store, ods.source, ods.root, file, choose_runner=ods.choose_runner)


def rows(ods: Ingesting) -> list[tuple[object, ...]]:
    return sorted(ods.rows, key=str)


def set_aside(ods: Ingesting) -> list[tuple[str | None, str | None, str]]:
    return sorted(
        ((row.file, row.position, row.raw or row.cause) for row in read_quarantined_rows(ods.store, ORDERS)), key=str
    )


FILES = {
    "a.csv": f'id,name\r\n1,a\r\n{LARGE},"b\r\nc"\r\nx,d\r\n',
    "b.csv": f'id,name\n2,a\n{LARGE + 1},b\n{LARGE + 2},"open\n',
    "c.csv": "id\n3\n",
    "sub/a.csv": f"name,id\ne,{LARGE + 3}\n",
}


def test_good_rows_go_in_and_the_others_stay_at_their_places(ods: Ingesting) -> None:
    ingest_as_int(ods, FILES)
    owners = {row.file: row.owner for row in read_quarantined_rows(ods.store, ORDERS)}
    done = release(ods)
    assert (done.rows, done.accepted, done.bad) == (5, 3, 2)
    assert [(bad.row.file, bad.row.position, bad.row.raw) for bad in done.still_bad] == [
        ("data/a.csv", "line 5", "x,d"),
        ("data/b.csv", "line 4", f'{LARGE + 2},"open'),
    ]
    assert rows(ods) == [(1, "a"), (2, "a"), (LARGE, "b\r\nc"), (LARGE + 1, "b"), (LARGE + 3, "e")]
    assert set_aside(ods) == [
        ("data/a.csv", "line 5", "x,d"),
        ("data/b.csv", "line 4", f'{LARGE + 2},"open'),
        ("data/c.csv", None, "data/c.csv lacks `name`"),
    ]
    assert all(row.owner == owners[row.file] for row in read_quarantined_rows(ods.store, ORDERS))
    assert fsck(ods.store).findings == ()
    again = release(ods)
    assert (again.rows, again.accepted, again.bad, again.commit) == (2, 0, 2, None)


def test_only_the_rows_of_a_file(ods: Ingesting, shared_data_files: None) -> None:
    ingest_as_int(ods, FILES)
    assert release(ods, "sub/a.csv").accepted == 1
    assert rows(ods) == [(1, "a"), (2, "a"), (LARGE + 3, "e")]
    assert [row[:2] for row in set_aside(ods)] == [
        ("data/a.csv", "line 3"),
        ("data/a.csv", "line 5"),
        ("data/b.csv", "line 3"),
        ("data/b.csv", "line 4"),
        ("data/c.csv", None),
    ]
    assert release(ods, "missing.csv").rows == 0
    with pytest.raises(Mistake, match=r"2 files with quarantined rows are called a.csv"):
        ods.write("other/a.csv", "id,name\nx,y\n")
        ods.run()
        release(ods, "a.csv")


def test_rows_of_a_file_in_several_data_files(ods: Ingesting) -> None:
    if isinstance(ods.choose_runner, PicklingRunner):
        ods.choose_runner = PicklingRunner(split_bytes=200)
    lines = [f"{LARGE + number},b" if number % 3 else f"{number},a" for number in range(60)]
    ingest_as_int(ods, {"a.csv": "\n".join(["id,name", *lines, "x,y", ""])}, multiline="false")
    location = next(version.location for name, version in ods.store.state().items() if name.layer == "quarantine")
    data_files = [entry for entry in read_entries(ods.store, load_metadata(ods.store, location)) if entry.is_data]
    assert len(data_files) > 1 or not isinstance(ods.choose_runner, PicklingRunner)
    assert release(ods).accepted == 40
    assert len(ods.rows) == 60
    assert set_aside(ods) == [("data/a.csv", "line 62", "x,y")]


def test_a_file_whose_encoding_was_declared_since_is_read_by_the_declared_columns(ods: Ingesting) -> None:
    ingest_as_int(ods, {"a.csv": f"id,name\n1,a\n{LARGE},b\n"}, header="true")
    ods.source = replace(ods.source, origin=replace(ods.source.origin, options=(("encoding", "utf-16"),)))
    assert release(ods).accepted == 1
