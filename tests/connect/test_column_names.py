"""No name that users give to columns is taken for one of ours: every name that a query uses, as columns of a table."""

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.changes.apply import stage_changes
from runnel.connect.feed import row_displacer
from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import log_table_of
from runnel.errors import Mistake
from runnel.internal_names import ICEBERG_COLUMNS, INTERNAL_WORDS, internal_column
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.diff.row_diff import diff_rows
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.merge.merge import merge_branch
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.plan.decisions.change_log import compute_content_id
from tests.connect.changes.change_log import CUSTOMERS, Applying, customers
from tests.lake.factories import add, create, iceberg_schema, read
from tests.lake.table_changes import branch, delete_rows, files
from tests.query_names import query_names
from tests.run.project import Project, did
from tests.servers.http_server import Server

OURS = query_names()
STORED = (*OURS, *sorted(ICEBERG_COLUMNS))  # an older Runnel, or another engine, may have made such tables
NAME = "ods.wide"
WIDE = TableName.parse(NAME)
Key = tuple[int, int]
Row = tuple[Any, ...]


def rows(*keys: Key, names: tuple[str, ...] = STORED) -> list[Row]:
    """Return rows, each known by an id and a sequence, with another value in every column."""
    return [(*key, *(f"{at}.{key[0]}.{key[1]}" for at in range(len(names)))) for key in sorted(keys)]


def table(*keys: Key) -> pa.Table:
    columns = ["id", "seq", *STORED]
    kinds = [pa.int64(), pa.int64(), *(pa.string() for _ in STORED)]
    schema = pa.schema(list(zip(columns, kinds, strict=True)))
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows(*keys)], schema)


# Tables that have such columns already: read, changed, compared and erased as any


@pytest.mark.parametrize(("scd", "is_large"), [(1, True), (2, False)], ids=["scd 1, rows marked", "scd 2, rewritten"])
def test_changes(store: Store, monkeypatch: pytest.MonkeyPatch, scd: int, is_large: bool) -> None:
    if is_large:
        monkeypatch.setattr(row_displacer, "LARGE_BYTES", 0)
        monkeypatch.setattr(row_displacer, "MOST_MARKED", 1.0)
    origin = customers().origin
    assert isinstance(origin, Changes)
    source = replace(customers(), origin=replace(origin, key=("id",), sequence_by=("seq",), scd=scd, delete_when=None))
    location, _ = table_metadata.create_table(store, log_table_of(CUSTOMERS), iceberg_schema(table().schema))
    applying = Applying(store, source, TableVersion(location, content_of_files(None, ())))
    for batch in (((1, 1), (2, 1), (3, 1)), ((1, 2),), ((4, 3), (2, 3))):
        assert applying.log is not None
        metadata = table_metadata.load_metadata(store, applying.log.location)
        written = parquet_writer.write_rows(store, metadata, table(*batch).to_batches())
        applying._edit(snapshots.VersionEdit(written), [file.file_path for file in written])
        done = stage_changes(store, source, applying.log, applying.head, None, report_progress=lambda *_: None)
        applying.head = TableVersion(done.location, compute_content_id(source, applying.log.content))
    if scd == 1:
        assert applying.rows() == rows((1, 2), (2, 3), (3, 1), (4, 3))
    else:
        every = rows((1, 1), (1, 2), (2, 1), (2, 3), (3, 1), (4, 3))
        assert [row[:-2] for row in sorted(applying.rows())] == every
        assert [row[-1] for row in sorted(applying.rows())] == [2, None, 3, None, None, None]


def test_erase_from_all_versions(store: Store) -> None:
    create(store, NAME, table((1, 1), (2, 1), (3, 1)))
    add(store, NAME, table((4, 1)))
    first = store.commit("main~1").id
    for at, (name, key) in enumerate({"_pos": 2, "_file": 3, "filename": 4}.items()):
        column = STORED.index(name)
        assert erase(store, WIDE, f"`{name}` = '{column}.{key}.1'").rows == 1, name
        assert read(store, NAME) == rows(*((number, 1) for number in (1, 3, 4) if number not in (2, 3, 4)[: at + 1]))
    assert read(store, NAME, first) == rows((1, 1))


def test_deletes_diff_and_compaction(store: Store) -> None:
    create(store, NAME, table((1, 1), (2, 1), (3, 1)))
    delete_rows(store, NAME, {files(store, NAME)[0].path: [1]})
    assert read(store, NAME) == rows((1, 1), (3, 1))
    add(store, NAME, table((4, 1), (4, 1)))
    keyless = diff_rows(store, "main~2", "main", WIDE)
    assert (list(keyless.removed), list(keyless.added)) == (rows((2, 1)), rows((4, 1), (4, 1)))
    delete_rows(store, NAME, {files(store, NAME)[0].path: [2], files(store, NAME)[1].path: [0]})
    add(store, NAME, table((3, 2)))
    keyed = diff_rows(store, "main~4", "main", WIDE, key=["id"])
    assert (list(keyed.removed), list(keyed.added)) == (rows((2, 1)), rows((4, 1)))
    ((changed,), old, new) = keyed.changed, rows((3, 1))[0], rows((3, 2))[0]
    names = ("id", "seq", *STORED)
    assert [(cell.column, cell.before, cell.after) for cell in changed.cells] == list(
        zip(names, old, new, strict=True)
    )[1:]
    compact(store, force=True)
    assert read(store, NAME) == rows((1, 1), (3, 2), (4, 1))


def test_merge(store: Store) -> None:
    create(store, NAME, table((1, 1)))
    branch(store, "dev")
    add(store, NAME, table((2, 1)), branch="dev")
    add(store, NAME, table((3, 1)))
    merge_branch(store, "dev", into="main")
    assert read(store, NAME) == rows((1, 1), (2, 1), (3, 1))


# New tables: filled from outside, quarantined, handed on


def flow(project: Project, text: str) -> None:
    project.write("flows/flow.py", "import runnel as rn\n\n" + text)


def quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def write_csv(path: Path, *keys: Key, wrong: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([("id", "seq", *OURS), *rows(*keys, names=OURS)])
        if wrong:
            writer.writerow((wrong, "1", *OURS))


def test_files_quarantine_and_sinks(tmp_path: Path) -> None:
    """Rows come, change and go; a bad one is set aside; what is left goes to a database, a folder and an address."""
    project = Project(tmp_path)
    kinds = ", ".join(f"`{name}` string" for name in OURS)
    with Server() as server, closing(sqlite3.connect(tmp_path / "out.db")) as database:
        flow(
            project,
            f"""rn.source("{NAME}", rn.files("data/*.csv", schema="id long, seq long, {kinds}"), on_bad="quarantine")
rn.sink("{NAME}", rn.jdbc("sqlite:///out.db", table="wide", key="id"))
rn.sink("{NAME}", rn.files("out/", format="jsonl", partition=["runnel"]))
rn.sink("{NAME}", rn.webhook("{server.url("/hook")}"))
""",
        )
        write_csv(tmp_path / "data" / "a.csv", (1, 1), (2, 1), wrong="none")
        write_csv(tmp_path / "data" / "b.csv", (3, 1))
        _ran(project)
        write_csv(tmp_path / "data" / "a.csv", (1, 2), wrong="none")
        _ran(project)
        left = rows((1, 2), (3, 1), names=OURS)
        assert project.rows(NAME) == left
        assert sorted(database.execute("SELECT * FROM wide")) == left
        handed = [json.loads(line) for path in tmp_path.glob("out/*/*.jsonl") for line in path.read_text().splitlines()]
        assert sorted(row["id"] for row in handed) == [1, 3]
        last = server.posts[-1].json
        assert [tuple(row.values()) for row in last["added"]] == rows((1, 2), names=OURS)
        assert [tuple(row.values()) for row in last["removed"]] == rows((1, 1), (2, 1), names=OURS)
    with project.open() as lake:
        (aside,) = lake.quarantine(NAME)
        assert "column `id`: 'none': not a long" in aside.reason
        (asked,) = lake.query(f"select {quoted(OURS)} from {NAME} where id = 1", engine="duckdb").rows()
        assert asked == left[0][2:]


def test_databases(tmp_path: Path) -> None:
    """Rows with a key change and come in tables of a database that have these columns."""
    project = Project(tmp_path)
    parts = [OURS[at : at + 90] for at in range(0, len(OURS), 90)]  # a function of SQLite takes 127 arguments
    source = 'rn.source("ods.t{}", rn.jdbc("sqlite:///shop.db", table="t{}", watermark="seq", key="id"))\n'
    flow(project, "".join(source.format(number, number) for number in range(len(parts))))
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as database:
        for number, names in enumerate(parts):
            columns = ", ".join(f'"{name}" text' for name in names)
            database.execute(f"CREATE TABLE t{number} (id integer PRIMARY KEY, seq integer, {columns})")
        for given in (((1, 1), (2, 1), (3, 1)), ((2, 2),), ((4, 3), (1, 3))):
            for number, names in enumerate(parts):
                for row in rows(*given, names=names):
                    values = ", ".join("?" for _ in row)
                    database.execute(f"INSERT OR REPLACE INTO t{number} VALUES ({values})", row)
            _ran(project)
    for number, names in enumerate(parts):
        assert project.rows(f"ods.t{number}") == rows((1, 3), (2, 2), (3, 1), (4, 3), names=names)


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    records = [dict(zip(("id", "seq", *OURS), row, strict=True)) for row in rows((1, 1), names=OURS)]
    (tmp_path / "a.jsonl").write_text(json.dumps(records[0]) + "\n")
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "day=1" / "b.parquet")
    project = Project(tmp_path)
    with project.open() as lake:
        for number, name in enumerate(("a.jsonl", "day=1/b.parquet")):
            lake.load(f"ods.t{number}", tmp_path / name, schema=", ".join(f"`{name}` string" for name in OURS))
            assert lake.query(f"select {quoted(OURS)} from ods.t{number}").rows() == [tuple(records[0].values())[2:]]


def _ran(project: Project) -> None:
    ran = project.run()
    assert not ran.errors, str(ran.errors[0])
    assert did(ran), "nothing was done"
    assert all(sent.error is None for sent in ran.sinks), ran.sinks


# Names that no new column may have


def test_reserved_names_are_refused(tmp_path: Path) -> None:
    with Project(tmp_path).open() as lake:
        for name in ("_FILE", *ICEBERG_COLUMNS, *map(internal_column, INTERNAL_WORDS)):
            pq.write_table(pa.table({"id": [1], name: ["a"]}), tmp_path / "a.parquet")
            with pytest.raises(Mistake) as raised:
                lake.load(NAME, tmp_path / "a.parquet")
            assert raised.value.code == "LOAD_COLUMN_NAME", name
        assert lake.tables() == []


RESERVED_SOURCES = {
    "files": ("_Pos", 'rn.files("data/*.csv", schema="id long, seq long, _Pos string")'),
    "a log of changes": (
        "_file",
        'rn.changes(rn.files("data/*.csv", schema="id long, seq long, _file string"), key="id", sequence_by="seq")',
    ),
    "a database": ("_pos", 'rn.jdbc("sqlite:///shop.db", table="t", watermark="seq", key="id")'),
}


@pytest.mark.parametrize(("name", "origin"), RESERVED_SOURCES.values(), ids=RESERVED_SOURCES)
def test_reserved_names_of_sources_are_refused(tmp_path: Path, name: str, origin: str) -> None:
    project = Project(tmp_path)
    flow(project, f'rn.source("{NAME}", {origin})\n')
    project.write("data/a.csv", f"id,seq,{name}\n1,1,a\n2,1,a\n")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as database:
        database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, seq integer, {name} text)")
        database.execute("INSERT INTO t VALUES (1, 1, 'a')")
    (error,) = project.run().errors
    assert error.code == "SOURCE_COLUMN_NAME" and f"a column '{name}'" in str(error)
    with project.open() as lake:
        assert lake.tables() == []


def test_the_message_about_a_reserved_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,_Pos\n1,2\n")
    with Project(tmp_path).open() as lake:
        with pytest.raises(Mistake) as raised:
            lake.load(NAME, tmp_path / "a.csv")
        lake.load(NAME, tmp_path / "a.csv", schema="id long", on_new_column="ignore")
    assert str(raised.value) == (
        f"LOAD_COLUMN_NAME: {tmp_path}/a.csv can't be loaded: it has a column '_Pos', which is the name of a column of "
        f"Iceberg's own: Spark could not read the table\n  at {tmp_path}/a.csv\n"
        "  fix: rename the column where the rows come from"
    )
