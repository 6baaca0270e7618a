"""Processes that can be killed at any moment, forked off a server that has everything imported: they start at once."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_context = multiprocessing.get_context("forkserver")
_RUNS = """
    client.glancing client.running run.execute run.ingest run.deliver run.fed run.applied connect.ingest.intake
    connect.feed.take connect.changes.apply connect.jdbc.postgres connect.kafka.feed connect.http.feed client.keep
    connect.push.feed lake.inbox
    run.stream.intake run.stages connect.feed.open connect.formats connect.function connect.jdbc.feed connect.jdbc.mysql
    connect.jdbc.sqlite connect.sinks.change connect.sinks.sql.outlet connect.sinks.folder connect.sinks.kafka
    connect.sinks.webhook declare.files declare.jdbc declare.kafka declare.http declare.sink declare.webhook
"""
_OTHERS = "confluent_kafka.admin adbc_driver_postgresql.dbapi pymysql requests pyexpat"
_context.set_forkserver_preload(
    ["tests.faults.workload", *(f"runnel.{name}" for name in _RUNS.split()), *_OTHERS.split(), "tests.faults.still"]
)


def start(work: Callable[..., None], *words: Any, fail: str | None = None) -> BaseProcess:
    """Start a process that runs `work`; `fail` arms failpoints in it."""
    process = _context.Process(target=_run, args=(work, words, fail), daemon=True)
    process.start()
    return process


def _run(work: Callable[..., None], words: tuple[Any, ...], fail: str | None) -> None:
    if fail is not None:
        os.environ["RUNNEL_FAIL"] = fail
    try:
        work(*words)
    except BaseException:
        # A trace on standard error would be taken for a failure of the test; the exit code tells it.
        import traceback

        with open(os.environ.get("RUNNEL_CREW_LOG", os.devnull), "a") as log:  # noqa: PTH123
            traceback.print_exc(file=log)
        os._exit(1)
    os._exit(0)


def killed(process: BaseProcess) -> bool:
    """Tell whether a process that has ended was killed."""
    process.join()
    return process.exitcode == -signal.SIGKILL
