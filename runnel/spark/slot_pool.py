"""Pool slots: Spark sessions with a private catalog, each used by one run or query at a time.

Sessions are reused, because Spark never unloads a catalog. A slot is reused only after every thread and job that used
it has ended; otherwise a late write would end up in the tables of the next user.
"""

import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.history.commits import Commit, LakeState
from runnel.lake.leases import slots
from runnel.spark.arrow_allocators import sweep_allocators
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store


@dataclass
class SlotLease:
    """A slot in use. A user that leaves a running thread behind must set `is_clean` to False."""

    slot: "Slot"
    session: "SparkSession"
    is_clean: bool = True


class SlotPool:
    """The slots of this process for one lake and one purpose; their sessions have the same settings."""

    def __init__(self, spark: "SparkSession", store: "Store", purpose: str, conf: Mapping[str, str]) -> None:
        self._spark = spark
        self._store = store
        self._conf = conf
        self._worker = f"{purpose}{os.getpid():x}{secrets.token_hex(3)}"
        self._guard = threading.Lock()
        self._free: list[tuple[int, SparkSession]] = []
        self._slot_count = 0

    @contextmanager
    def acquire(self, commit: Commit, tables: LakeState, layers: Iterable[str] = ()) -> Iterator[SlotLease]:
        """Fill a slot with tables and yield it with its session.

        Work that was interrupted may still have threads in its slot, so that slot is never reused.
        """
        with self._guard:
            number, session = self._free.pop() if self._free else (self._slot_count, None)
            self._slot_count += session is None
        slot = slots.acquire_slot(self._store.db, self._worker, number, commit, tables, layers=layers)
        lease, has_ended = None, False
        try:
            lease = SlotLease(slot, session or self._create_session(slot.name))
            yield lease
            has_ended = True
        except RunnelError:
            has_ended = True  # raised only after Spark has finished
            raise
        finally:
            slots.release(self._store.db, slot)
            if lease is not None and lease.is_clean and has_ended:
                with self._guard:
                    self._free.append((number, lease.session))
                sweep_allocators(lease.session)

    def _create_session(self, name: str) -> "SparkSession":
        database = self._store.db.url.render_as_string(hide_password=False)
        session = create_slot_session(self._spark, CatalogSettings(name, database, self._store.warehouse))
        for key, value in self._conf.items():
            session.conf.set(key, value)
        return session


_pools: dict[tuple[str, str, str, str], SlotPool] = {}
_guard = threading.Lock()


def get_slot_pool(spark: "SparkSession", store: "Store", purpose: str, conf: Mapping[str, str]) -> SlotPool:
    """Return this process's slot pool for a lake and a purpose, which is one letter."""
    database = store.db.url.render_as_string(hide_password=False)
    key = (spark.sparkContext.applicationId, database, store.warehouse, purpose)
    with _guard:
        for old_key in [old_key for old_key in _pools if old_key[0] != key[0]]:
            del _pools[old_key]  # that Spark has ended
        return _pools.setdefault(key, SlotPool(spark, store, purpose, conf))
