"""What comes to a service from outside, on and on, and what must have become of it.

Each kind is a class: what it declares, a step that is done again and again, and what is `missing` of what was
acknowledged. To let more come, write one more and add it to `ALL`.
"""

import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, ClassVar

from runnel.lake.control import queue_entry
from tests.faults.service.retrying_client import Client
from tests.faults.service.shop_project import Shop

_ASKED = """
from flows.beat import counted

counted("ods.asked")
"""


class Sender(ABC):
    """A thread that sends until it is told to stop; `quiet` makes it rest."""

    flow: ClassVar[Mapping[str, str]] = {}
    needs_spark: ClassVar[bool] = False
    pause_seconds: ClassVar[float] = 1.0

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.stop = threading.Event()
        self.client = Client(shop.url, shop.token, self.stop)
        self.guard = threading.Lock()  # held while it sends
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._send, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send no more."""
        self.stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def step(self) -> None:
        """Send the next."""

    @abstractmethod
    def missing(self) -> str:
        """Return what of all that was acknowledged is not there yet; raise where something is there twice."""

    def _send(self) -> None:
        while not self.stop.wait(self.pause_seconds):
            with self.guard:
                if self.stop.is_set():
                    return
                try:
                    self.step()
                except Exception as error:
                    self.problem = f"{type(self).__name__}: {type(error).__name__}: {error}"
                    return


class Orders(Sender):
    """Files with orders of a few days: a source that is looked at all the time."""

    flow: ClassVar = {
        "orders.py": """
import runnel as rn

rn.source("ods.orders", rn.files("data/*.csv", schema="id long, day date, amount long"), poll="1 second")
"""
    }
    FIRST, DAYS, ROWS = date(2026, 1, 1), 4, 10
    TABLES: ClassVar[tuple[str, ...]] = ("ods.orders",)

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop)
        self.rows: list[tuple[int, date, int]] = []

    def step(self) -> None:
        """Put one more file, whole from the first moment on."""
        first = len(self.rows)
        rows = [(number, self.day(number), number * 7919 % 1009) for number in range(first, first + self.ROWS)]
        text = "".join(f"{number},{day},{amount}\n" for number, day, amount in rows)
        passing = self.shop.data / f".{first}"
        passing.write_text(f"id,day,amount\n{text}")
        passing.rename(self.shop.data / f"{first:06}.csv")
        self.rows += rows

    def day(self, number: int) -> date:
        return self.FIRST + timedelta(days=number % self.DAYS)

    def missing(self) -> str:
        """Compare each table with what was sent: every row once."""
        sent = len(self.rows)
        wanted = [(sent, sent, sum(amount for _, _, amount in self.rows))]
        for table in self.TABLES:
            found = self.shop.ask(f"select count(*), count(distinct id), sum(amount) from {table}", table)
            assert not found or found[0][0] <= sent, f"{table} has more than was sent: {found} and not {wanted}"
            if found != wanted:
                return f"{table} has {found} and not {wanted}"
        return ""


class Flows(Orders):
    """The same with a stream that keeps each row, and a task by day that follows changes."""

    needs_spark = True
    TABLES = ("ods.orders", "dwd.kept")
    flow: ClassVar = {
        **Orders.flow,
        "dwd/kept.sql": '/* runnel\nstream = "ods.orders"\n*/\nselect id, day, amount from ods.orders\n',
        "dws/days.sql": '/* runnel\nby = "day"\n*/\n'
        "select day, count(*) as n, sum(amount) as total from ods.orders group by day\n",
        "follow.py": """
import runnel as rn

rn.schedule("follow", on_change="ods.orders", at_most_every="3 seconds", select="dws.days", retries=30)
""",
    }

    def missing(self) -> str:
        """Compare the days, too."""
        if told := super().missing():
            return told
        numbers, totals = Counter[date](), Counter[date]()
        for _, day, amount in self.rows:
            numbers[day] += 1
            totals[day] += amount
        wanted = sorted((day, numbers[day], totals[day]) for day in numbers)
        found = self.shop.ask("select day, n, total from dws.days order by day", "dws.days")
        return "" if found == wanted else f"dws.days has {found} and not {wanted}"


class Requests(Sender):
    """Runs that somebody asks for. Each leaves one row."""

    flow: ClassVar = {"asked.py": _ASKED}
    pause_seconds = 1.5
    BODY: ClassVar = {"select": ["ods.asked"]}

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop)
        self.acknowledged: list[str] = []

    def step(self) -> None:
        """Ask for one run."""
        if (found := self.client.post("/api/v1/runs", self.BODY)) is not None:
            self.acknowledged.append(str(found["run"]))

    def right_before(self) -> str:
        """Ask for one more run, now, and return the key by which it may be asked for again."""
        key = uuid.uuid4().hex
        with self.guard:
            if (found := self.client.post("/api/v1/runs", self.BODY, key=key)) is not None:
                self.acknowledged.append(str(found["run"]))
        return key

    def missing(self) -> str:
        """See that each has ended well and has left its row."""
        known = {one.id: one for one in self.shop.entries()}
        lost = [run for run in self.acknowledged if run not in known]
        assert not lost, f"acknowledged and not in the queue: {lost}"
        assert len(set(self.acknowledged)) == len(self.acknowledged), "two requests were given one run"
        if waiting := [run for run in self.acknowledged if known[run].is_open]:
            return f"{len(waiting)} runs that were asked for have not ended: {known[waiting[0]]}"
        done = [run for run in self.acknowledged if known[run].state == queue_entry.SUCCEEDED]
        rows = self.shop.count("ods.asked")
        assert rows == len(done), f"{len(done)} runs were asked for and have succeeded, {rows} have left a row"
        return ""


class Pushed(Sender):
    """Events that are pushed, some at a time. What was acknowledged is there, once."""

    flow: ClassVar = {
        "pushed.py": """
import runnel as rn

rn.source("ods.pushed", rn.http(schema="id long"))
"""
    }
    pause_seconds = 0.5
    AT_ONCE = 5

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop)
        self.acknowledged = 0

    def step(self) -> None:
        """Push some."""
        events = [{"id": self.acknowledged + number} for number in range(self.AT_ONCE)]
        if self.client.post("/api/v1/sources/ods.pushed/events", events) is not None:
            self.acknowledged += self.AT_ONCE

    def missing(self) -> str:
        """Compare the table with what was acknowledged: every event once."""
        wanted = [(self.acknowledged, self.acknowledged, self.acknowledged - 1)]
        found = self.shop.ask("select count(*), count(distinct id), max(id) from ods.pushed", "ods.pushed")
        assert not found or found[0][0] <= self.acknowledged, f"ods.pushed has more than was sent: {found}, {wanted}"
        return "" if found == wanted or not self.acknowledged else f"ods.pushed has {found} and not {wanted}"


class Backfills(Sender):
    """One backfill after the other, each of some days, a day in a chunk."""

    needs_spark = True

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop)
        self.acknowledged: list[str] = []
        self.resumed = 0

    def step(self) -> None:
        """Ask for the next when the one before has ended."""
        if not self._is_under_way() and self.shop.count("dws.days"):
            last = Orders.FIRST + timedelta(days=Orders.DAYS - 1)
            body = {"select": ["dws.days"], "from": str(Orders.FIRST), "to": str(last), "chunk": "1d"}
            if (found := self.client.post("/api/v1/backfills", body)) is not None:
                self.acknowledged.append(str(found["backfill"]))

    def missing(self) -> str:
        """See that each was made once, and has computed each day."""
        listed = self.client.get("/api/v1/backfills?limit=1000")["items"]
        found = {one["backfill"]: one for one in listed}
        assert set(found) == set(self.acknowledged), f"asked for {self.acknowledged}, there are {sorted(found)}"
        if self._is_under_way():
            return f"a backfill has not ended: {found[self.acknowledged[-1]]}"
        return next((f"{one}" for one in found.values() if one["state"] != "succeeded"), "")

    def _is_under_way(self) -> bool:
        """Look after the last one: where so many workers died over a chunk that it was given up, it is resumed."""
        if not self.acknowledged:
            return False
        name = self.acknowledged[-1]
        found = self._last(name)
        if found is not None and found["state"] == "failed":
            self.client.post(f"/api/v1/backfills/{name}/resume")
            self.resumed += 1
        return found is None or found["state"] in ("running", "failed")

    def _last(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self.client.get(f"/api/v1/backfills/{name}"))
        except OSError:
            return None  # nobody answers now


ALL: tuple[type[Sender], ...] = (Flows, Requests, Backfills, Pushed)
WITHOUT_SPARK: tuple[type[Sender], ...] = (Orders, Requests, Pushed)
