"""From a row to the file and the line that brought it, and from a commit to the files that it read."""

from pathlib import Path

import pytest

from runnel.errors import Mistake
from runnel.lake.flow_state.ingest_position import ProcessedFile, SourceRecord, find_source_record
from runnel.lake.iceberg.data_file_owners import OwnedRow, make_owner_prefix
from runnel.lake.provenance.row_provenance import RowProvenance
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.names import TableName
from tests.run.project import Project

DAY = "2026-01-01"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.flow("")
    project.orders("a", (1, DAY, 5), (2, DAY, 6))
    project.run()
    project.orders("b", (3, "2026-01-02", 7), (4, DAY, 8))
    project.run()
    return project


def why(project: Project, row: str, table: str = "ods.orders", at: str = "main") -> RowProvenance:
    with project.open() as lake:
        return lake.why(table, row=row, at=at)


def place(project: Project, row: str, table: str = "ods.orders") -> tuple[str | None, str | None]:
    (traced,) = why(project, row, table).rows
    return traced.file, traced.line or (f"record {traced.record}" if traced.record else None)


def test_a_row_leads_to_its_file_line_commit_and_run(shop: Project) -> None:
    (traced,) = why(shop, "id = 4").rows
    with shop.open() as lake:
        newest, first = lake.log()[0], lake.log()[1]
    assert (traced.file, traced.record, traced.line) == ("data/orders/b.csv", 2, "line 3")
    assert (traced.commit, traced.run, traced.kind) == (newest, newest.run, "source")
    assert dict(traced.values) == {"id": 4, "day": DAY, "amount": 8}
    assert why(shop, "id = 1").rows[0].commit == first
    assert str(why(shop, "id = 4")).splitlines() == [
        f"ods.orders at {newest.id[:8]} on main: 1 row where id = 4",
        "",
        f"  row        id=4, day={DAY}, amount=8",
        "  file       data/orders/b.csv, line 3",
        f"  commit     {newest.id[:8]} on main, {newest.at[:19].replace('T', ' ')} UTC: run ods.orders",
        f"  run        {newest.run}",
    ]


def test_a_file_that_changed_or_was_renamed_since(shop: Project) -> None:
    shop.orders("b", (9, DAY, 9), (4, DAY, 8))
    assert place(shop, "id = 4") == ("data/orders/b.csv", "record 2")  # its lines are no longer those that were read
    shop.run()
    assert place(shop, "id = 4") == ("data/orders/b.csv", "line 3")
    (shop.root / "data/orders/b.csv").rename(shop.root / "data/orders/c.csv")
    shop.run()
    assert place(shop, "id = 4") == ("data/orders/c.csv", "line 3")


def test_the_line_is_the_line_of_the_file_not_the_number_of_the_row(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.flow("rn.source('ods.notes', rn.files('*.csv', schema='id long, note string', skip=1))", orders=None)
    shop.write("notes.csv", 'exported by hand\nid,note\n1,"two\nlines"\n\n2,x\n')
    shop.run()
    assert place(shop, "id = 2", "ods.notes") == ("notes.csv", "line 6")


def test_only_the_file_is_known_if_bad_rows_were_skipped(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    files = "rn.files('data/orders/*.csv', schema='id long, day date, amount long')"
    shop.flow(f"rn.source('ods.orders', {files}, on_bad='quarantine')", orders=None)
    shop.write("data/orders/a.csv", f"id,day,amount\n1,{DAY},x\n2,{DAY},5\n")
    shop.run()
    (traced,) = why(shop, "id = 2").rows
    assert (traced.file, traced.record, traced.line) == ("data/orders/a.csv", None, None)
    assert traced.note == "which record of the file it is, is not known: bad rows of the file were skipped"
    with pytest.raises(Mistake) as raised:
        why(shop, "id = 1")
    assert (raised.value.code, str(raised.value.fix).partition(";")[0]) == (
        "WHY_NO_ROW",
        "`runnel quarantine ods.orders` shows rows that were set aside",
    )


def test_a_row_of_a_merged_branch_leads_to_the_commit_on_the_branch(shop: Project) -> None:
    with shop.open() as lake:
        lake.branch("dev")
    shop.orders("c", (5, DAY, 1))
    brought = shop.run(branch="dev")
    shop.write("data/orders/c.csv", "id,day,amount\n")
    shop.orders("d", (6, DAY, 1))
    shop.orders("c", (5, DAY, 1))
    (shop.root / "data/orders/c.csv").unlink()
    shop.run()
    with shop.open() as lake:
        lake.merge("dev")
    (traced,) = why(shop, "id = 5").rows
    assert (traced.file, traced.commit.id, traced.commit.branch) == ("data/orders/c.csv", brought.commit, "dev")


def test_rows_of_a_load_and_of_several(shop: Project) -> None:
    shop.write("x.csv", "id\n" + "\n".join(map(str, range(25))) + "\n")
    with shop.open() as lake:
        lake.load("ods.x", shop.root / "x.csv")
    provenance = why(shop, "id >= 0", "ods.x")
    assert (len(provenance.rows), provenance.rows_total, provenance.rows[0].kind) == (10, 25, "load")
    assert provenance.rows[0].note == "its line is not known: `runnel load` does not record it"
    assert str(provenance).splitlines()[0].endswith("25 rows where id >= 0; the first 10")


MISTAKES = {
    "id ==== 4": ("WHY_CONDITION", "'id ==== 4' is not a condition in Spark SQL"),
    "upper(id) = 4": ("WHY_CONDITION", "'UPPER(id) = 4' is not allowed in this condition"),
    "amuont = 4": ("WHY_COLUMN_UNKNOWN", "`ods.orders` has no column `amuont`; close: `amount`"),
    "day = 'soon'": ("WHY_CONDITION", "soon"),
    "id = 77": ("WHY_NO_ROW", "matches id = 77"),
}


@pytest.mark.parametrize(("row", "expected"), MISTAKES.items())
def test_mistakes(shop: Project, row: str, expected: tuple[str, str]) -> None:
    with pytest.raises(Mistake) as raised:
        why(shop, row)
    assert raised.value.code == expected[0] and expected[1] in raised.value.what and raised.value.fix


def test_a_commit_names_the_files_that_it_read(shop: Project) -> None:
    shop.orders("a", (1, DAY, 50))
    (shop.root / "data/orders/b.csv").rename(shop.root / "data/orders/c.csv")
    shop.orders("d", (7, DAY, 1), (8, DAY, 1), (9, DAY, 1))
    shop.run()
    with shop.open() as lake:
        files = {file.file: (file.change, file.rows) for file in lake.files_of("main")}
        first = {file.file: (file.change, file.rows, file.size) for file in lake.files_of("main~2")}
    assert files == {
        "data/orders/a.csv": ("changed", 1),
        "data/orders/b.csv": ("removed", None),
        "data/orders/c.csv": ("renamed", 2),
        "data/orders/d.csv": ("added", 3),
    }
    assert first == {"data/orders/a.csv": ("added", 2, len(f"id,day,amount\n1,{DAY},5\n2,{DAY},6\n"))}


def file(name: str, *data_files: str, incomplete: bool = False) -> ProcessedFile:
    return ProcessedFile(name, 1, 1, "d", "i", data_files, is_incomplete=incomplete)


RECORDS = {
    "a row of a file": (
        (file("b.csv", "w/b.parquet"), file("a.csv", "w/a.parquet")),
        "v/a.parquet",
        ("a.csv", 4, None),
    ),
    "rows were skipped": (
        (file("a.csv", "w/a.parquet", incomplete=True),),
        "w/a.parquet",
        ("a.csv", None, "bad rows of the file were skipped"),
    ),
    "several data files": (
        (file("a.csv", "w/a.parquet", "w/b.parquet"),),
        "w/a.parquet",
        ("a.csv", None, "the rows of the file are in several data files"),
    ),
    "no file": ((file("a.csv", "w/a.parquet"),), "w/z.parquet", None),
}


@pytest.mark.parametrize(("files", "data_file", "expected"), RECORDS.values(), ids=RECORDS)
def test_which_record_a_stored_row_is(
    files: tuple[ProcessedFile, ...], data_file: str, expected: tuple[str, int | None, str | None] | None
) -> None:
    assert find_source_record(files, data_file, 3, None) == (SourceRecord(*expected) if expected else None)


FIRST, SECOND = "0" * 32, "1" * 32
OWNED_RECORDS = {
    "as it was written": (file("a.csv", f"w/shared-{FIRST}.parquet"), FIRST, 3, (4, None)),
    "from a data file of its own": (
        file("a.csv", f"w/{make_owner_prefix('a.csv')}{FIRST}.parquet"),
        FIRST,
        3,
        (4, None),
    ),
    "others were removed": (
        file("a.csv", f"w/shared-{FIRST}.parquet"),
        FIRST,
        None,
        (None, "other rows of the file were removed since"),
    ),
    "of an earlier read": (
        file("a.csv", f"w/shared-{SECOND}.parquet"),
        FIRST,
        3,
        (None, "its rows were rewritten since"),
    ),
    "rows were skipped": (
        file("a.csv", f"w/shared-{FIRST}.parquet", incomplete=True),
        FIRST,
        3,
        (None, "bad rows of the file were skipped"),
    ),
}


@pytest.mark.parametrize(("owner_file", "origin", "number", "expected"), OWNED_RECORDS.values(), ids=OWNED_RECORDS)
def test_which_record_a_row_of_a_shared_data_file_is(
    owner_file: ProcessedFile, origin: str, number: int | None, expected: tuple[int | None, str | None]
) -> None:
    row = OwnedRow(make_owner_prefix("a.csv"), f"{origin}.1", number)
    files = (file("b.csv", f"w/shared-{FIRST}.parquet", f"w/shared-{SECOND}.parquet"), owner_file)
    data_file = f"w/shared-{SECOND}.parquet"
    assert find_source_record(files, data_file, 7, row) == SourceRecord("a.csv", *expected)
    assert find_source_record(files[:1], data_file, 7, row) is None


def test_rows_of_small_files_that_share_data_files(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.flow("")
    for number in range(40):
        shop.orders(f"{number:02}", (2 * number, DAY, 1), (2 * number + 1, DAY, 1))
    first = shop.run().commit
    assert place(shop, "id = 7") == ("data/orders/03.csv", "line 3")
    shop.orders("04", (8, DAY, 2))
    second = shop.run().commit
    with shop.open() as lake:
        assert {file.file: (file.change, file.rows) for file in lake.files_of("main")} == {
            "data/orders/04.csv": ("changed", 1)
        }
        assert {file.rows for file in lake.files_of("main~1")} == {2}
        [compaction] = compact(lake.store, TableName("ods", "orders"))
    assert compaction.commit
    expected = {
        7: ("data/orders/03.csv", "line 3", first),
        8: ("data/orders/04.csv", "line 2", second),
        78: ("data/orders/39.csv", "line 2", first),
    }
    for row_id, (path, line, commit) in expected.items():
        (traced,) = why(shop, f"id = {row_id}").rows
        assert (traced.file, traced.line, traced.commit.id, traced.kind) == (path, line, commit, "source")
    with shop.open() as lake:
        erase(lake.store, TableName("ods", "orders"), "id = 6")
    assert place(shop, "id = 78") == ("data/orders/39.csv", "line 2")
    (traced,) = why(shop, "id = 7").rows
    assert (traced.file, traced.record) == ("data/orders/03.csv", None)
    assert traced.note == "which record of the file it is, is not known: other rows of the file were removed since"
