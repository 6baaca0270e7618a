"""Back up a lake while it is written, and restore it, as docs/upkeep.md says."""

import shutil
import sqlite3
from pathlib import Path

import runnel as rn
from runnel.lake.upkeep.fsck.fsck import fsck


def load(root: Path, number: int) -> None:
    (root / "rows.csv").write_text(f"id\n{number}\n")
    with rn.open(root) as lake:
        lake.load("ods.orders", root / "rows.csv")


def test_a_catalog_and_a_warehouse_that_was_copied_later(tmp_path: Path) -> None:
    root, backup = tmp_path / "shop", tmp_path / "backup"
    home = root / ".runnel"
    root.mkdir()
    backup.mkdir()
    (root / "runnel.toml").write_text('[project]\nname = "shop"\n')
    load(root, 1)
    with sqlite3.connect(home / "catalog.db") as catalog:
        catalog.execute(f"vacuum into '{backup / 'catalog.db'}'")
    load(root, 2)
    shutil.copytree(home / "warehouse", backup / "warehouse")
    shutil.rmtree(home)
    home.mkdir()
    shutil.copytree(backup / "warehouse", home / "warehouse")
    shutil.copy(backup / "catalog.db", home / "catalog.db")
    with rn.open(root) as lake:
        assert fsck(lake.store).is_clean
        assert lake.query("select id from ods.orders").rows() == [(1,)]
    load(root, 3)
    with rn.open(root) as lake:
        assert lake.query("select id from ods.orders order by id").rows() == [(1,), (3,)]
        assert fsck(lake.store).is_clean
