"""1,000 schedules that are due at the same minute: how long after it the last of them was queued."""

import sqlite3
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.figure import Figure
from bench.served import PATIENCE_SECONDS, Service, served

PORT = 8485
MINUTES = 3
FLOW = """
import runnel as rn

rn.source("ods.orders", rn.files("data/*.csv", schema="id long"))

for number in range({schedules}):
    rn.schedule(f"every_minute_{{number:04}}", cron="* * * * *", select="ods.orders", catch_up="all")
"""


def run(schedules: int = 1000) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("flows", "data"):
            (root / folder).mkdir()
        (root / "runnel.toml").write_text('[project]\nname = "many"\n')
        (root / "data" / "a.csv").write_text("id\n1\n")
        (root / "flows" / "flow.py").write_text(FLOW.format(schedules=schedules))
        with served(root, PORT) as service:
            _wait(service, schedules)
            found = _queued(service, schedules)
    last, details = max(found.values()), {"minutes": found, "each_once": True}
    return [
        Figure(f"{schedules:,} schedules due at one minute: the last is queued after", last, "s", "<= 2 s", details)
    ]


def _queued(service: Service, schedules: int) -> dict[str, float]:
    """Return how many seconds after each of the next whole minutes all schedules are seen in the queue, each once."""
    first, found = int(time.time() // 60 + 1) * 60, {}
    query = "select count(*), count(distinct cause) from runnel_queue where slot like 'schedule/%/' || ?"
    connection = sqlite3.connect(service.project / ".runnel" / "catalog.db", timeout=30, isolation_level=None)
    for due in (first + 60 * number for number in range(MINUTES)):
        slot = f"{datetime.fromtimestamp(due, UTC):%Y-%m-%dT%H:%M:%SZ}"
        time.sleep(max(due - time.time(), 0))
        while (seen := connection.execute(query, (slot,)).fetchone()) != (schedules, schedules):
            if time.time() > due + PATIENCE_SECONDS or seen[0] > schedules:
                raise RuntimeError(f"{seen[0]} runs were queued for {slot} instead of {schedules}")
            time.sleep(0.02)
        found[slot] = round(time.time() - due, 3)
    connection.close()
    return found


def _wait(service: Service, schedules: int) -> None:
    """Wait until the service knows all schedules."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (known := len(_all(service, "/schedules"))) != schedules:
        if time.monotonic() > until:
            raise RuntimeError(f"the service knows {known} schedules instead of {schedules}")
        time.sleep(0.2)


def _all(service: Service, path: str) -> list[object]:
    found: list[object] = []
    cursor = ""
    while True:
        page = service.ask("GET", f"{path}?limit=1000{cursor}")
        found += page["items"]
        if not page.get("next"):
            return found
        cursor = f"&cursor={page['next']}"
