"""Lend slots: each a session of Spark with a private catalog, used by one run or query at a time.

Sessions are kept, because Spark never unloads a catalog. A slot is lent again only after every thread and job that
used it has ended; else a straggler's write would land in the next one's tables.
"""

import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.history.commits import Commit, State
from runnel.lake.leases import slots
from runnel.spark.arrow_allocators import sweep
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import slot_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store


@dataclass
class Loan:
    """A slot in use. Whoever leaves a thread behind in it marks it as not clean."""

    slot: "Slot"
    session: "SparkSession"
    is_clean: bool = True


class Lender:
    """The slots of this process over one lake for one purpose, whose sessions have the same settings."""

    def __init__(self, spark: "SparkSession", store: "Store", purpose: str, conf: Mapping[str, str]) -> None:
        self._spark = spark
        self._store = store
        self._conf = conf
        self._worker = f"{purpose}{os.getpid():x}{secrets.token_hex(3)}"
        self._guard = threading.Lock()
        self._free: list[tuple[int, SparkSession]] = []
        self._count = 0

    @contextmanager
    def lend(self, commit: Commit, tables: State, layers: Iterable[str] = ()) -> Iterator[Loan]:
        """Fill a slot with tables and lend it with its session.

        Work that was torn off may still have threads in its slot, so that one is never lent again.
        """
        with self._guard:
            number, session = self._free.pop() if self._free else (self._count, None)
            self._count += session is None
        taken = slots.take(self._store.db, self._worker, number, commit, tables, layers)
        loan, ended = None, False
        try:
            loan = Loan(taken, session or self._session(taken.name))
            yield loan
            ended = True
        except RunnelError:
            ended = True  # whoever tells it knows that Spark is done
            raise
        finally:
            slots.release(self._store.db, taken)
            if loan is not None and loan.is_clean and ended:
                with self._guard:
                    self._free.append((number, loan.session))
                sweep(loan.session)

    def _session(self, name: str) -> "SparkSession":
        database = self._store.db.url.render_as_string(hide_password=False)
        session = slot_session(self._spark, CatalogSettings(name, database, self._store.warehouse))
        for key, value in self._conf.items():
            session.conf.set(key, value)
        return session


_lenders: dict[tuple[str, str, str, str], Lender] = {}
_guard = threading.Lock()


def lender(spark: "SparkSession", store: "Store", purpose: str, conf: Mapping[str, str]) -> Lender:
    """Return the one lender of this process for a lake and a purpose, which is a letter."""
    database = store.db.url.render_as_string(hide_password=False)
    key = (spark.sparkContext.applicationId, database, store.warehouse, purpose)
    with _guard:
        for old in [old for old in _lenders if old[0] != key[0]]:
            del _lenders[old]  # that Spark has ended
        return _lenders.setdefault(key, Lender(spark, store, purpose, conf))
