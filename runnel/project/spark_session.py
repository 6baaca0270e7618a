"""The Spark session of this process, and tables as frames at a fixed version."""

import os
import secrets
from typing import TYPE_CHECKING

from runnel.lake.leases import slots
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import SparkSettings, slot_session, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from runnel.declare.settings import Settings
    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store
    from runnel.names import TableName


def session(
    settings: "Settings", tell: "Callable[[str], None] | None" = None, *, brief: bool = False
) -> "SparkSession":
    """Return the Spark session of this process, started on first use; its log is the project's.

    `brief` is for a process that computes little and then ends.
    """
    log = settings.home / "logs" / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return start(SparkSettings(master=settings.master, conf=dict(settings.conf), log_file=log, brief=brief), tell)


class Frames:
    """Tables as Spark frames, each at the commit that was asked for, however its branch moves on.

    All tables of a commit share one slot, which is held until the lake is closed.
    """

    def __init__(self, store: "Store", spark: "SparkSession") -> None:
        self._store = store
        self._spark = spark
        self._worker = f"f{os.getpid():x}{secrets.token_hex(3)}"
        self._held: dict[str, tuple[Slot, SparkSession]] = {}

    def read(self, table: "TableName", at: str) -> "DataFrame":
        """Return a table at a ref."""
        commit = self._store.commit(at)
        self._store.versions(commit, [table])
        if commit.id not in self._held:
            number = len(self._held)
            taken = slots.take(self._store.db, self._worker, number, commit, self._store.state(commit))
            database = self._store.db.url.render_as_string(hide_password=False)
            catalog = CatalogSettings(taken.name, database, self._store.warehouse)
            try:
                self._held[commit.id] = (taken, slot_session(self._spark, catalog))
            except BaseException:
                slots.release(self._store.db, taken)
                raise
        taken, found = self._held[commit.id]
        return found.table(f"{taken.name}.{table.layer}.{table.name}")

    def close(self) -> None:
        """Give the slots back; the frames can't be read any more."""
        for taken, _ in self._held.values():
            slots.release(self._store.db, taken)
        self._held.clear()
