"""Events pushed over HTTP: how many a second the service takes from 1, 10 and 100 clients, each durable when answered.

Clients are threads of another process on the same machine, each with a connection of its own, and send the next
request when the last one was answered: one event at a time, then 100. In the end the table is compared with what was
acknowledged. Beside it how often a second the same disk takes a small write with fsync, by one writer.
"""

import json
import multiprocessing
import os
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

from bench.figure import Figure
from bench.served import PATIENCE_SECONDS, Service, served

PORT = 8486
SECONDS = 8.0
CLIENTS = (1, 10, 100)
SIZES = (1, 100)
FLOW = """
import runnel as rn

rn.source("ods.events", rn.http(schema="id long, kind string, at timestamp"))
"""


def run() -> list[Figure]:
    figures, sent = [], 0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "flows").mkdir()
        (root / "runnel.toml").write_text('[project]\nname = "pushed"\n')
        (root / "flows" / "flow.py").write_text(FLOW)
        with served(root, PORT) as service:
            _wait(service)
            for size in SIZES:
                for clients in CLIENTS:
                    taken, seconds = _pushed(root, clients, size, sent)
                    sent += taken
                    words = f"push, {clients} client{'s' if clients > 1 else ''}, {size} event{'s' if size > 1 else ''}"
                    figures.append(Figure(f"{words} a request", taken / seconds, "events/s"))
            _require(service, sent)
        figures.append(Figure("push: small writes with fsync, one writer", _synced(root), "writes/s"))
    figures[0].details.update({"events": sent, "each_once": True, "seconds": SECONDS})
    return figures


def _wait(service: Service) -> None:
    """Wait until the service knows the source."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            service.ask("POST", "/sources/ods.events/events", [])
            return
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _pushed(root: Path, clients: int, size: int, first: int) -> tuple[int, float]:
    """Let clients of another process push, and return how many events were acknowledged, and in how long."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=push, args=(root, clients, size, first, there))
    process.start()
    found: tuple[int, float] = here.recv()
    process.join()
    return found


def push(root: Path, clients: int, size: int, first: int, told: "multiprocessing.connection.Connection") -> None:
    """Push from several threads for a while; ids go on from `first`, none left out."""
    numbers, guard, taken = count(first, size), threading.Lock(), [0] * clients
    barrier = threading.Barrier(clients + 1)
    until = [0.0]

    def client(which: int) -> None:
        service = Service(root, PORT)
        barrier.wait()
        while time.perf_counter() < until[0]:
            with guard:
                number = next(numbers)
            events = [{"id": number + at, "kind": "click", "at": "2026-01-02T03:04:05Z"} for at in range(size)]
            answer = service.ask(
                "POST", "/sources/ods.events/events", json.dumps(events if size > 1 else events[0]).encode()
            )
            taken[which] += answer["taken"]
        service.close()

    threads = [threading.Thread(target=client, args=(which,)) for which in range(clients)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    until[0] = started + SECONDS
    barrier.wait()
    for thread in threads:
        thread.join()
    told.send((sum(taken), time.perf_counter() - started))


def _require(service: Service, sent: int) -> None:
    """Take everything in, and raise where the table lacks an event or has one twice."""
    ran = service.run()
    if ran["state"] not in ("succeeded", "nothing"):
        raise RuntimeError(f"a run ended as {ran['state']}: {ran.get('error')}")
    query = "select count(*) n, count(distinct id) ids, min(id) low, max(id) high from ods.events"
    (found,) = service.ask("POST", "/query", {"sql": query})["rows"]
    if found != [sent, sent, 0, sent - 1]:
        raise RuntimeError(f"{sent} events were acknowledged, the table has {found}")


def _synced(root: Path, seconds: float = 2.0) -> float:
    done, until = 0, time.perf_counter() + seconds
    with (root / "synced").open("wb", buffering=0) as file:
        while time.perf_counter() < until:
            file.write(b"x" * 200)
            os.fsync(file.fileno())
            done += 1
    return done / seconds
