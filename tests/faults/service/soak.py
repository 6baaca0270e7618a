"""Many small runs through one worker, and a stream beside them: memory, threads, files and connections stay flat.

make test-faults ONLY=soak                      # RUNS=200 for a shorter one, CATALOG=sqlite for the other database
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.control import queue_entry
from tests.faults.service.resource_usage import Gauge
from tests.faults.service.retrying_client import Client
from tests.faults.service.senders import Flows
from tests.faults.service.service_supervisor import System
from tests.faults.service.shop_project import Shop
from tests.servers.postgres import Server
from tests.service.running_service import until

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

RUNS = 1000
_FAMILIES, _AT_ONCE = 4, 3
_SAMPLE_SECONDS = 2.0
_KINDS = {"service": "service --watched", "worker": "worker --watched", "java": "java"}
Tell = Callable[[str], None]
_FLOW = "from flows.beat import counted\n\n" + "".join(f'counted("ods.n{number}")\n' for number in range(_FAMILIES))
# What is kept in memory on purpose is kept short, so that it is full soon, and hides no leak.
_KEPT = """
from runnel.lake.iceberg import manifests, table_metadata

table_metadata.MAX_CACHED_PARTS, manifests.CACHED_ENTRIES, manifests.CACHED_MANIFESTS = 2000, 2000, 2000
for cache in (table_metadata._cache, manifests._cached_lists, manifests._cached_entries):
    cache._Cache__maxsize = 2000
"""
_TASKS = {
    f"dws/n{number}.sql": f"select max(n) as n, count(*) as rows_there from ods.n{number}\n"
    for number in range(_FAMILIES)
}
_CONF = ', "spark.cleaner.periodicGC.interval" = "15s", "spark.driver.extraJavaOptions" = "-Xlog:gc:file={log}"'


class Soak:
    """One project, kept up, and what is measured of it."""

    def __init__(self, folder: Path, runs: int, server: Server | None, tell: Tell) -> None:
        self.runs, self._tell, self._server = runs, tell, server
        self.gauge, self._heap = Gauge(), folder / "gc.log"
        catalog = server.url if server else f"sqlite:///{folder}/shop/.runnel/catalog.db"
        parts = {**Flows.flow, **_TASKS, "n.py": _FLOW, "kept.py": _KEPT}
        self.shop = Shop(folder / "shop", catalog, parts, conf=_CONF.format(log=self._heap))
        self.orders = Flows(self.shop)
        self.system = System(self.shop.root, folder / "up.txt", self.shop.port)
        self.client = Client(self.shop.url, self.shop.token)
        self._asked = [0] * _FAMILIES

    def close(self) -> None:
        self.orders.close()
        self.system.close()
        self.shop.close()

    def go(self) -> None:
        """Ask for one run after the other, a few at a time, until all have ended."""
        self.client.await_up(120)
        self.orders.start()
        sampled, told, began = 0.0, 0, time.monotonic()
        while (ended := self._count(queue_entry.SUCCEEDED)) < self.runs:
            assert not self._count(queue_entry.FAILED), f"runs failed: {self.shop.entries([queue_entry.FAILED])[0]}"
            open_ = self._count(*queue_entry.OPEN_STATES)
            for _ in range(min(_AT_ONCE - open_, self.runs - sum(self._asked))):
                self._ask(sum(self._asked) % _FAMILIES)  # in turn, so that few meet at one table
            if time.monotonic() - sampled > _SAMPLE_SECONDS:
                sampled = time.monotonic()
                self._sample()
            if ended // 100 > told:
                told = ended // 100
                self._tell(f"{ended} of {self.runs} runs in {time.monotonic() - began:.0f} s")
            time.sleep(0.1)

    def judge(self) -> str:
        """See that all runs left what they should, and that nothing grew."""
        self.orders.close()
        assert self.orders.problem is None, self.orders.problem
        until(lambda: not self.orders.missing(), 120, self.orders.missing)
        for number, asked in enumerate(self._asked):
            found = self.shop.ask(f"select n, rows_there from dws.n{number}", f"dws.n{number}")
            assert found == [(asked, asked)], f"{asked} runs were asked for, dws.n{number} has {found}"
        self.shop.check()
        self.gauge.read_heap(self._heap)
        for line in self.gauge.lines():
            self._tell(line)
        assert self.system.end() == 0
        growing = self.gauge.growing()
        assert not growing, "it grows:\n" + "\n".join(growing)
        rows = len(self.orders.rows)
        return f"{self.runs} runs, {rows} rows through a stream: memory, threads, files and connections flat"

    def _ask(self, family: int) -> None:
        self.client.post("/api/v1/runs", {"select": [f"ods.n{family}", f"dws.n{family}"]})
        self._asked[family] += 1

    def _count(self, *states: str) -> int:
        columns = schema.queue.c

        def work(connection: "Connection") -> int:
            query = sa.select(sa.func.count()).where(columns.cause == "user", columns.state.in_(states))
            return int(connection.execute(query).scalar_one())

        return self.shop.lake.store.db.read(work)

    def _sample(self) -> None:
        self.gauge.measure("supervisor", self.system.pid)
        for name, words in _KINDS.items():
            if (pid := self.system.child(words)) is not None:
                self.gauge.measure(name, pid)
        if self._server is not None:
            self.gauge.note("PostgreSQL", "connections", _connections(self._server))


def _connections(server: Server) -> int:
    import psycopg

    with closing(psycopg.connect(server.url)) as connection:
        found = connection.execute("select count(*) from pg_stat_activity where backend_type = 'client backend'")
        row = found.fetchone()
        assert row is not None
        return int(row[0])


def soak(runs: int, catalog: str, tell: Tell) -> str:
    """Do it on one database, and return what was seen."""
    os.environ.setdefault("RUNNEL_CDS", "ready")
    with ExitStack() as stack:
        server = stack.enter_context(Server()) if catalog == "postgresql" else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        trial = Soak(folder, runs, server, tell)
        stack.callback(trial.close)
        try:
            trial.go()
            return f"{trial.judge()} ({catalog})"
        except BaseException:
            tell((folder / "up.txt").read_text(errors="replace")[-5000:])
            raise
