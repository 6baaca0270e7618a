"""The catalog's schema: made once, migrated by itself, refused when it is newer; a moved lake is noticed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import migrate, schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.schema_revisions import REVISIONS
from runnel.lake.store import Store


def test_migrations_make_what_the_code_declares(both: Store) -> None:
    with both.db.read_transaction() as connection:
        found = sa.inspect(connection)
        assert set(found.get_table_names()) == {*schema.metadata.tables, "runnel_schema"}
        for table in schema.metadata.sorted_tables:
            assert {column["name"] for column in found.get_columns(table.name)} == set(table.columns.keys()), table.name
            assert {index["name"] for index in found.get_indexes(table.name)} >= {index.name for index in table.indexes}


def test_ten_first_starts_at_once_make_one_lake(catalog: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as pool:
        stores = list(pool.map(lambda _: Store.open(catalog, f"{tmp_path}/w"), range(10)))
    assert len({store.commit("main").id for store in stores}) == 1


def test_a_newer_schema_is_refused(catalog: str, tmp_path: Path) -> None:
    store = Store.open(catalog, f"{tmp_path}/w")
    store.db.write(lambda connection: connection.execute(sa.text("update runnel_schema set version_num = '9999'")))
    with pytest.raises(Mistake, match="newer version of Runnel wrote this lake: its schema is 9999"):
        Store.open(catalog, f"{tmp_path}/w")


def test_a_catalog_of_another_engine_is_taken_over(catalog: str, tmp_path: Path) -> None:
    """A schema without Runnel's tables, as Iceberg's own catalogs make it, migrates by itself and loses nothing."""
    from pyiceberg.catalog.sql import SqlCatalog

    db = Database(catalog)
    if db.is_sqlite:
        Path(str(db.url.database)).parent.mkdir(parents=True)
    other = SqlCatalog("main", uri=db.url.render_as_string(hide_password=False), warehouse=f"file://{tmp_path}/w")
    other.create_namespace("ods")
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    other.create_table("ods.old", Schema(NestedField(1, "id", LongType())))
    store = Store.open(catalog, f"{tmp_path}/w")
    assert [str(name) for name in store.state("main")] == ["ods.old"]
    assert store.commit("main").kind == "adopt"
    assert (
        store.db.read(lambda c: c.execute(sa.text("select version_num from runnel_schema")).scalar()) == REVISIONS[-1]
    )


def test_a_lake_of_an_older_runnel_is_upgraded(catalog: str, tmp_path: Path) -> None:
    """What it held stays; a slot of an older process has no token, and nobody takes it for another's."""
    db = Database(catalog)
    if db.is_sqlite:
        Path(str(db.url.database)).parent.mkdir(parents=True)
    slot = "insert into runnel_slots (name, owner, commit_id, taken_at, expires_at) values ('s', 'x:1', 'c', 'a', 'b')"

    def old(connection: sa.Connection) -> None:
        migrate._migrate(connection, "0001")
        migrate._create_lake(connection, db.now(connection), f"{tmp_path}/w", "ada")
        connection.execute(sa.text(slot))

    db.write(old)
    names = db.read(lambda connection: set(sa.inspect(connection).get_table_names()))
    assert "runnel_results" not in names and "runnel_slots" in names
    store = Store.open(catalog, f"{tmp_path}/w")
    assert store.commit("main").kind == "create"
    assert store.db.read(lambda connection: connection.execute(sa.select(schema.slots.c.token)).scalars().all()) == [""]
    counts = [sa.select(sa.func.count()).select_from(table) for table in (schema.results, schema.runs, schema.ingested)]
    assert [store.db.read(lambda connection, query=query: connection.execute(query).scalar()) for query in counts] == [
        0,
        0,
        0,
    ]


def make_old_lake(catalog: str, warehouse: str) -> Database:
    """Make a lake as an older Runnel left it, at the first revision of the schema."""
    db = Database(catalog)
    if db.is_sqlite:
        Path(str(db.url.database)).parent.mkdir(parents=True, exist_ok=True)

    def create(connection: sa.Connection) -> None:
        migrate._migrate(connection, "0001")
        migrate._create_lake(connection, db.now(connection), warehouse, "ada")

    db.write(create)
    return db


def test_a_migration_that_fails_changes_nothing(catalog: str, tmp_path: Path) -> None:
    """The last revision finds a table in its way: none of those before it stays either."""
    db = make_old_lake(catalog, f"{tmp_path}/w")
    db.write(lambda connection: connection.execute(sa.text("create table runnel_tokens (x integer)")))
    names = db.read(lambda connection: set(sa.inspect(connection).get_table_names()))
    with pytest.raises(Exception, match="runnel_tokens"):
        Store.open(catalog, f"{tmp_path}/w")
    assert db.read(lambda connection: set(sa.inspect(connection).get_table_names())) == names
    assert db.read(migrate._read_revision) == "0001"
    db.write(lambda connection: connection.execute(sa.text("drop table runnel_tokens")))
    assert Store.open(catalog, f"{tmp_path}/w").db.read(migrate._read_revision) == REVISIONS[-1]


def test_a_command_that_only_reads_migrates_and_a_backup_leads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/upkeep.md says it: back up, upgrade, go back with the backup, upgrade again."""
    import sqlite3
    import sys

    from runnel.cli.main import main

    path = tmp_path / ".runnel/catalog.db"
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    make_old_lake(f"sqlite:///{path}", f"{tmp_path}/.runnel/warehouse").close()
    with sqlite3.connect(path) as connection:
        connection.execute("vacuum into ?", [str(tmp_path / "backup.db")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["runnel", "tables"])
    for _ in range(2):
        main()
        assert "no tables yet" in capsys.readouterr().out
        assert read_revision(path) == REVISIONS[-1]
        for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
            (path.parent / name).unlink(missing_ok=True)
        path.write_bytes((tmp_path / "backup.db").read_bytes())
        assert read_revision(path) == "0001"


def read_revision(path: Path) -> str:
    import sqlite3

    with sqlite3.connect(path) as connection:
        return str(connection.execute("select version_num from runnel_schema").fetchone()[0])


def test_a_moved_lake_is_noticed(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/a/catalog.db", f"{tmp_path}/a/w").close()
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(Mistake, match="fsck --relocate"):
        Store.open(f"sqlite:///{tmp_path}/b/catalog.db", f"{tmp_path}/b/w")


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "postgres//x"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(Mistake, match="SQLite or PostgreSQL"):
        Database(url)
