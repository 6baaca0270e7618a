"""1,000 schedules that are due at the same minute: how long after it the last of them was queued."""

import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.figure import Figure
from bench.served import Service, served

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
            known = len(_all(service, "/schedules"))
            if known != schedules:
                raise RuntimeError(f"the service knows {known} schedules instead of {schedules}")
            found = _queued(service, schedules)
    last = max(max(late) for late in found.values())
    details: dict[str, object] = {
        "minutes": {slot: [min(late), statistics.median(late), max(late)] for slot, late in found.items()},
        "each_once": True,
    }
    return [
        Figure(f"{schedules:,} schedules due at one minute: the last is queued after", last, "s", "<= 2 s", details)
    ]


def _queued(service: Service, schedules: int) -> dict[str, list[float]]:
    """Return how many seconds after each whole minute each schedule was queued, for the minutes since the start."""
    first = int(time.time() // 60 + 1) * 60
    slots = [f"{datetime.fromtimestamp(first + 60 * number, UTC):%Y-%m-%dT%H:%M:%SZ}" for number in range(MINUTES)]
    time.sleep(max(first + 60 * (MINUTES - 1) + 5 - time.time(), 0))
    import sqlite3

    query = "select slot, queued_at from runnel_queue where cause like 'schedule/%'"
    with sqlite3.connect(service.project / ".runnel" / "catalog.db", timeout=30) as connection:
        rows = connection.execute(query).fetchall()
    connection.close()
    found: dict[str, list[float]] = {}
    for slot in slots:
        due = datetime.fromisoformat(slot).timestamp()
        found[slot] = [
            round(datetime.fromisoformat(queued_at).timestamp() - due, 3)
            for named, queued_at in rows
            if named.endswith(f"/{slot}")
        ]
        if len(found[slot]) != schedules:
            raise RuntimeError(f"{len(found[slot])} runs were queued for {slot} instead of {schedules}")
    return found


def _all(service: Service, path: str) -> list[object]:
    found: list[object] = []
    cursor = ""
    while True:
        page = service.ask("GET", f"{path}?limit=1000{cursor}")
        found += page["items"]
        if not page.get("next"):
            return found
        cursor = f"&cursor={page['next']}"
