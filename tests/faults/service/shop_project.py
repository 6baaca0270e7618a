"""A small project that `runnel up` keeps going, and how somebody who looks on sees it.

What each sender sends is declared by the sender itself; here is what every trial has: a schedule of every other second
whose runs each leave one row, one of each minute, a task that follows changes, and a stream.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import runnel as rn
from runnel.lake.control import run_queue
from runnel.lake.upkeep.fsck.fsck import fsck
from tests.servers.kafka import _free_ports

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.queue_entry import QueueEntry

BEAT_SECONDS = 2
FLOW = f'''
import runnel as rn

def counted(table):
    """A source that has one row more each time that it is read."""
    @rn.source(table, schema="n long")
    def count(state):
        number = (state or {{}}).get("n", 0) + 1
        return [{{"n": number}}], {{"n": number}}

counted("ods.beats")
counted("ods.minutes")
rn.schedule("beat", every="{BEAT_SECONDS} seconds", select="ods.beats", catch_up="all", retries=30)
rn.schedule("minute", cron="* * * * *", tz="Europe/Berlin", select="ods.minutes", retries=30)
'''
_TOML = """
[project]
name = "shop"
[lake]
catalog = "{catalog}"
[spark]
master = "local[2]"
conf = {{ "spark.driver.memory" = "1g"{conf} }}
"""


class Shop:
    """The project in a folder. `parts` are the texts of its flow files, by their names."""

    def __init__(self, root: Path, catalog: str, parts: dict[str, str], conf: str = "") -> None:
        self.root, self.port = root, _free_ports(1)[0]
        self.data = root / "data"
        self.data.mkdir(parents=True)
        (root / "runnel.toml").write_text(_TOML.format(catalog=catalog, conf=conf))
        for name, text in {"beat.py": FLOW, **parts}.items():
            path = root / "flows" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> Path:
        return self.root / ".runnel/token"

    @cached_property
    def lake(self) -> "Lake":
        """Return the lake, as somebody who looks on holds it."""
        return rn.open(self.root)

    def close(self) -> None:
        """Close the lake."""
        self.lake.close()

    def ask(self, sql: str, *tables: str) -> list[tuple[Any, ...]]:
        """Return what a query answers, nothing where a table that it reads is not there yet."""
        there = self.lake.tables()
        return self.lake.query(sql, engine="duckdb").rows() if set(tables) <= set(there) else []

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        found = self.ask(f"select count(*) from {table}", table)
        return int(found[0][0]) if found else 0

    def entries(self, states: Iterable[str] = (), cause: str | None = None) -> "list[QueueEntry]":
        """Return entries of the queue."""
        db = self.lake.store.db
        return db.read(lambda connection: run_queue.list_entries(connection, states=states, cause=cause))

    def check(self) -> None:
        """See that the lake is sound."""
        errors = [finding for finding in fsck(self.lake.store).findings if finding.severity == "error"]
        assert not errors, errors
