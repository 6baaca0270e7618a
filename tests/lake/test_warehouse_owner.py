"""A warehouse belongs to one lake with one catalog: no other catalog opens it, and none sweeps its files."""

import json
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.lake.warehouse_owner import FILE_NAME, read_owner
from tests.lake.factories import add, create, read, rows

if TYPE_CHECKING:
    from tests.servers.s3 import Store as Objects

AT_ONCE = Retention(grace="0 seconds")


def opened(folder: Path, catalog: str = "catalog.db", **options: bool) -> Store:
    return Store.open(f"sqlite:///{folder}/{catalog}", f"{folder}/warehouse", **options)


def furnished(folder: Path) -> Store:
    store = opened(folder)
    create(store, "ods.orders", rows((1, "d1", 5), (2, "d2", 6)))
    return store


def forget_owner(folder: Path) -> None:
    (folder / "warehouse" / FILE_NAME).unlink()


def copied(folder: Path) -> str:
    with sqlite3.connect(folder / "catalog.db") as original, sqlite3.connect(folder / "copy.db") as copy:
        original.backup(copy)
    return "copy.db"


def blank_from_before(folder: Path) -> str:
    """Make an empty catalog as an older Runnel did, beside a warehouse that says nothing of its owner."""
    store = Store.open(f"sqlite:///{folder}/typo.db", f"{folder}/elsewhere")
    store.db.write(lambda connection: connection.execute(schema.lake.update().values(warehouse=f"{folder}/warehouse")))
    store.close()
    forget_owner(folder)
    return "typo.db"


def unnamed(folder: Path) -> str:
    forget_owner(folder)
    return "typo.db"


def lost(folder: Path) -> str:
    for file in folder.glob("catalog.db*"):
        file.unlink()
    return "catalog.db"


OTHERS: dict[str, tuple[Callable[[Path], str], str]] = {
    "a typo": (
        lambda _: "typo.db",
        "belongs to the lake {lake} with the catalog sqlite:///{folder}/catalog.db, not to",
    ),
    "a copy": (copied, "not to the catalog sqlite:///{folder}/copy.db, which is a copy of it"),
    "a typo beside files that nobody owns": (unnamed, "holds files, but the catalog sqlite:///{folder}/typo.db is"),
    "an empty catalog of an older Runnel": (blank_from_before, "holds files, but the catalog sqlite:///{folder}/typo"),
    "a catalog that was lost, and made anew": (lost, "the database at that address is now a different one"),
}


@pytest.mark.parametrize(("prepare", "message"), OTHERS.values(), ids=OTHERS)
def test_another_catalog_is_refused_and_sweeps_nothing(
    tmp_path: Path, prepare: Callable[[Path], str], message: str
) -> None:
    store = furnished(tmp_path)
    lake = store.db.read(lambda connection: connection.execute(sa.select(schema.lake.c.uuid)).scalar_one())
    store.close()
    catalog = prepare(tmp_path)
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(Mistake) as refused:
        opened(tmp_path, catalog)
    assert refused.value.code == "LAKE_FOREIGN"
    assert message.format(lake=lake, folder=tmp_path) in refused.value.what
    assert "runnel fsck --adopt" in (refused.value.fix or "")
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_a_refused_catalog_is_not_created(tmp_path: Path) -> None:
    furnished(tmp_path).close()
    with pytest.raises(Mistake, match="LAKE_FOREIGN"):
        opened(tmp_path, "typo.db")
    assert not (tmp_path / "typo.db").exists()


def test_nothing_is_swept_once_another_catalog_owns_the_warehouse(tmp_path: Path) -> None:
    store = furnished(tmp_path)
    adopting = opened(tmp_path, copied(tmp_path), adopt=True)
    add(adopting, "ods.orders", rows((3, "d3", 7)))
    with pytest.raises(Mistake, match="LAKE_FOREIGN"):
        gc(store, AT_ONCE)
    assert len(read(adopting, "ods.orders")) == 3 and fsck(adopting, deep=True).is_clean
    gc(adopting, AT_ONCE)
    opened(tmp_path, "copy.db").close()
    with pytest.raises(Mistake, match="LAKE_FOREIGN"):
        opened(tmp_path)


def test_a_lake_of_an_older_runnel_gets_its_owner_at_its_first_opening(tmp_path: Path) -> None:
    furnished(tmp_path).close()
    forget_owner(tmp_path)
    store = opened(tmp_path)
    owner = json.loads((tmp_path / "warehouse" / FILE_NAME).read_text())
    assert owner["catalog"] == f"sqlite:///{tmp_path}/catalog.db" and owner["warehouse"] == f"{tmp_path}/warehouse"
    gc(store, AT_ONCE)
    assert read_owner(store) is not None and fsck(store, retention=AT_ONCE).findings == ()


def test_a_catalog_by_another_path_is_the_same(tmp_path: Path) -> None:
    furnished(tmp_path).close()
    (tmp_path / "link.db").symlink_to(tmp_path / "catalog.db")
    assert len(read(opened(tmp_path, "link.db"), "ods.orders")) == 2


def test_a_warehouse_that_can_only_be_read_is_opened(tmp_path: Path) -> None:
    """Who may not write into it owns nothing, and so sweeps nothing."""
    furnished(tmp_path).close()
    forget_owner(tmp_path)
    (tmp_path / "warehouse").rename(tmp_path / "kept")
    (tmp_path / "warehouse").symlink_to(tmp_path / "kept")
    (tmp_path / "kept" / FILE_NAME).symlink_to("/proc/nothing")
    store = opened(tmp_path)
    (tmp_path / "kept" / FILE_NAME).unlink(missing_ok=True)
    assert len(read(store, "ods.orders")) == 2


def test_a_lake_is_not_relocated_onto_the_warehouse_of_another(tmp_path: Path) -> None:
    furnished(tmp_path / "a").close()
    furnished(tmp_path / "b").close()
    shutil.copy(tmp_path / "b" / "catalog.db", tmp_path / "a" / "b.db")
    stranger = opened(tmp_path / "a", "b.db", moved=True)
    with pytest.raises(Mistake, match="LAKE_FOREIGN"):
        relocate(stranger)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    shutil.copy(tmp_path / "c" / "catalog.db", tmp_path / "a" / "c.db")
    copy = opened(tmp_path / "c", moved=True)
    relocate(copy)
    copy.close()
    shutil.copy(tmp_path / "c" / "catalog.db", tmp_path / "a" / "c.db")
    back = opened(tmp_path / "a", "c.db", moved=True)
    with pytest.raises(Mistake, match="which is a copy of it"):
        relocate(back)


@pytest.mark.postgres
def test_a_copy_of_a_postgresql_catalog_is_refused(postgres: str, tmp_path: Path) -> None:
    server = sa.make_url(postgres)
    names = [f"lake_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")

    def statement(sql: str) -> None:
        with engine.connect() as connection:
            connection.execute(sa.text(sql))

    statement(f'create database "{names[0]}"')
    first, second = (server.set(database=name).render_as_string(hide_password=False) for name in names)
    store = Store.open(first, f"{tmp_path}/warehouse")
    create(store, "ods.orders", rows((1, "d1", 5)))
    store.close()
    statement(f'create database "{names[1]}" template "{names[0]}"')
    engine.dispose()
    with pytest.raises(Mistake) as refused:
        Store.open(second, f"{tmp_path}/warehouse")
    assert names[0] in refused.value.what and f"{names[1]}, which is a copy of it" in refused.value.what
    host = "localhost" if server.host == "127.0.0.1" else server.host
    other_name = server.set(database=names[0], host=host, query={"application_name": "other"})
    assert len(read(Store.open(other_name.render_as_string(False), f"{tmp_path}/warehouse"), "ods.orders")) == 1


def test_a_warehouse_in_an_object_store_has_one_owner(s3: "Objects", tmp_path: Path) -> None:
    warehouse = f"s3://{s3.bucket}/{uuid.uuid4().hex}/warehouse"
    store = Store.open(f"sqlite:///{tmp_path}/catalog.db", warehouse, storage=s3.storage)
    create(store, "ods.orders", rows((1, "d1", 5)))
    store.close()
    owner = read_owner(store)
    assert owner is not None and owner.catalog == f"sqlite:///{tmp_path}/catalog.db"
    gc(store, AT_ONCE)
    assert read_owner(store) == owner
    with pytest.raises(Mistake, match=r"LAKE_FOREIGN: .*catalog\.db"):
        Store.open(f"sqlite:///{tmp_path}/typo.db", warehouse, storage=s3.storage)
    copied(tmp_path)
    copy = Store.open(f"sqlite:///{tmp_path}/copy.db", warehouse, storage=s3.storage)
    for _ in range(2):
        with pytest.raises(Mistake, match="which is a copy of it"):
            gc(copy, AT_ONCE)
