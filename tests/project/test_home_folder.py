"""No other user of the machine reads what is in `.runnel`; folders that the user chose keep their permissions."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel as rn
from runnel.connect.ingest.detect.digests import DigestCache
from runnel.connect.ingest.detect.listing import ListedSourceFile
from runnel.errors import Mistake
from runnel.project import instance_file
from runnel.run.run_log import RunLog
from runnel.service.log_files import LogFileHandler

OTHERS = stat.S_IRWXG | stat.S_IRWXO
NOBODY = 65534


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Path]:
    """Return a project of a user whose new files everybody may read and write."""
    previous_mask = os.umask(0)
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "orders.csv").write_text("id,day\n1,2026-01-01\n")
    yield tmp_path
    os.umask(previous_mask)


def readable_by_others(folder: Path) -> list[str]:
    """Return what others could read of a folder, apart from the warehouse's contents, which its folder protects."""
    paths = [path for path in (folder, *folder.rglob("*")) if folder / "warehouse" not in path.parents]
    return sorted(path.name for path in paths if path.lstat().st_mode & OTHERS)


def write_state(home: Path) -> None:
    """Write the files that a service and its runs leave in `.runnel`."""
    RunLog(home / "logs" / "runs", "r1").write("started")
    log_handler = LogFileHandler(home / "logs" / "up.log", maxBytes=1, backupCount=1, encoding="utf-8")
    log_handler.doRollover()
    log_handler.close()
    instance_file.save_token(home, "secret")
    source_file = ListedSourceFile("orders.csv", 21, 1)
    DigestCache(home / "digests.db").compute_digests(home.parent, [source_file], 10**18)


def test_a_new_lake_is_readable_for_its_owner_only(shop: Path) -> None:
    home = shop / ".runnel"
    instance = instance_file.ServiceInstance(1, "http://127.0.0.1:1", "now")
    with rn.open(shop) as lake, instance_file.announce_instance(home, instance):
        lake.load("ods.orders", shop / "orders.csv")
        write_state(home)
        names = {path.name for path in home.rglob("*")}
        assert {"catalog.db-wal", "catalog.db-shm", "up.lock", "up.json", "up.log.1", "r1.log", "digests.db"} <= names
        assert readable_by_others(home) == []


def test_a_lake_that_exists_is_restricted_when_it_is_opened(shop: Path) -> None:
    home = shop / ".runnel"
    with rn.open(shop) as lake:
        lake.load("ods.orders", shop / "orders.csv")
        write_state(home)
    data_file = next((home / "warehouse").rglob("*.parquet"))
    for path in (home, *home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (shop / "linked.txt").write_text("elsewhere")
    (home / "logs" / "link").symlink_to(shop / "linked.txt")
    with rn.open(shop):  # nothing of the lake was read yet, as by a run that has nothing to do
        assert readable_by_others(home) == ["link"], "a link has no permissions of its own"
    assert stat.S_IMODE((shop / "linked.txt").stat().st_mode) == 0o666
    assert stat.S_IMODE(data_file.stat().st_mode) == 0o666, "not looked at: its folder is closed"


def test_a_warehouse_of_a_group_keeps_its_permissions(shop: Path) -> None:
    team_folder = shop / "team"
    team_folder.mkdir()
    team_folder.chmod(0o2770)
    (shop / "runnel.toml").write_text(
        f'[project]\nname = "shop"\n[lake]\nwarehouse = "{team_folder}"\ncatalog = "sqlite:///{team_folder}/catalog.db"\n'
    )
    with rn.open(shop) as lake:
        lake.load("ods.orders", shop / "orders.csv")
    data_file = next(team_folder.rglob("*.parquet"))
    assert {path.stat().st_mode & 0o060 for path in (team_folder, data_file.parent, data_file)} == {0o060}
    assert (team_folder / "catalog.db").stat().st_mode & 0o040, "as SQLite creates it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_how_to_share_a_lake(shop: Path) -> None:
    for folder in (shop, *shop.parents[: len(shop.parents) - 2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    with rn.open(shop) as lake:
        lake.tables()
    os.seteuid(NOBODY)
    try:
        with rn.open(shop) as lake, pytest.raises(Mistake, match="readable for its owner only") as raised:
            lake.tables()
    finally:
        os.seteuid(0)
    assert raised.value.code == "LAKE_NOT_YOURS" and "PostgreSQL" in str(raised.value.fix)
