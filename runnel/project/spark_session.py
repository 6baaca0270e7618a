"""Open the Spark session of this process, and read tables as frames at a fixed commit."""

import os
import secrets
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.lake.iceberg.file_io import local_path
from runnel.lake.leases import slots
from runnel.private_files import create_private_file, create_private_folder
from runnel.project.work_places import read_work_place_rules
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.jvm.command_line import is_local
from runnel.spark.session import SparkSettings, create_slot_session, running_session, start_spark, stop_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from runnel.declare.settings import Settings
    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store
    from runnel.names import TableName


def open_spark_session(
    settings: "Settings",
    report: "Callable[[str], None] | None" = None,
    *,
    brief: bool = False,
    user: object | None = None,
) -> "SparkSession":
    """Return the Spark session of this process, started on first use; it logs into the project's folder.

    `brief` is for a process that computes little and then ends. `user` is the object that uses the session.
    """
    check_shared_warehouse(settings)
    log = settings.home / "logs" / "spark.log"
    create_private_folder(log.parent)
    create_private_file(log)
    spark_settings = SparkSettings(master=settings.master, conf=dict(settings.conf), log_file=log, is_short_lived=brief)
    previous_session = running_session()
    spark = start_spark(spark_settings, report, user)
    if spark is not previous_session and not is_local(settings.master):
        try:
            check_executors(spark, settings)
        except BaseException:
            stop_spark()  # the next start checks again
            raise
    return spark


def check_shared_warehouse(settings: "Settings") -> None:
    """Raise if executors of a cluster could not reach the warehouse: each machine would write files of its own."""
    path = local_path(settings.warehouse)
    if path is None or read_work_place_rules(settings).is_shared(str(path)):
        return
    what = f"the warehouse {path} is a folder of this machine, and {settings.master} has executors on others"
    fix = f'list the folder if all machines see it, [spark] shared = ["{path}"], or use warehouse = "s3://..."'
    raise Mistake("SPARK_WAREHOUSE", what, at=str(settings.root / "runnel.toml"), fix=fix)


def check_executors(spark: "SparkSession", settings: "Settings") -> None:
    """Raise if the executors of a cluster have other packages than this process, or don't see its warehouse."""
    from runnel.spark.executors.probe import check_facts, probe_executor

    path = local_path(settings.warehouse)
    if path is None:
        check_facts(probe_executor(spark))
        return
    probe_file, content = path / f".probe-{secrets.token_hex(8)}", secrets.token_hex(8)
    path.mkdir(parents=True, exist_ok=True)
    try:
        probe_file.write_text(content)
        facts = probe_executor(spark, str(probe_file))
    finally:
        probe_file.unlink(missing_ok=True)
    check_facts(facts)
    if facts.file_content != content:
        what = f"an executor does not see the files that this machine writes to {path}"
        fix = "mount the same folder on all machines at this path, or use an object store"
        raise Mistake("SPARK_WAREHOUSE", what, at=str(settings.root / "runnel.toml"), fix=fix)


class FrameReader:
    """Reads tables as Spark frames, each at a fixed commit, even if its branch changes later.

    All tables of a commit share one slot, which is held until the lake is closed.
    """

    def __init__(self, store: "Store", spark: "SparkSession") -> None:
        self._store = store
        self._spark = spark
        self._worker = f"f{os.getpid():x}{secrets.token_hex(3)}"
        self._slots_by_commit: dict[str, tuple[Slot, SparkSession]] = {}

    def read(self, table: "TableName", at: str) -> "DataFrame":
        """Return a table at a ref."""
        commit = self._store.commit(at)
        self._store.versions(commit, [table])
        if commit.id not in self._slots_by_commit:
            number = len(self._slots_by_commit)
            slot = slots.acquire_slot(self._store.db, self._worker, number, commit, self._store.state(commit))
            database = self._store.db.url.render_as_string(hide_password=False)
            catalog = CatalogSettings(slot.name, database, self._store.warehouse)
            try:
                self._slots_by_commit[commit.id] = (slot, create_slot_session(self._spark, catalog))
            except BaseException:
                slots.release(self._store.db, slot)
                raise
        slot, slot_spark = self._slots_by_commit[commit.id]
        return slot_spark.table(f"{slot.name}.{table.layer}.{table.name}")

    def close(self) -> None:
        """Release the slots; the frames can't be read any more."""
        for slot, _ in self._slots_by_commit.values():
            slots.release(self._store.db, slot)
        self._slots_by_commit.clear()
