"""Processes that can be killed at any moment, forked off a server that has everything imported: they start at once."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_context = multiprocessing.get_context("forkserver")
_RUNS = (
    "runnel.project.planning.fast_skip",
    "runnel.project.execution.run_project",
    "runnel.run.execute",
    "runnel.run.sources.file_source",
    "runnel.run.deliver",
    "runnel.run.sources.feed_source",
    "runnel.run.sources.change_log",
    "runnel.connect.ingest.ingest_files",
    "runnel.connect.feed.ingest_feed",
    "runnel.connect.changes.apply",
    "runnel.connect.jdbc.drivers.postgres",
    "runnel.connect.kafka.feed",
    "runnel.connect.http.feed",
    "runnel.service.worker.loops.loop_supervisor",
    "runnel.connect.feed.push_feed",
    "runnel.lake.flow_state.inbox_reader",
    "runnel.run.sources.continuous_ingest",
    "runnel.spark.task_progress",
    "runnel.connect.feed_registry",
    "runnel.connect.feed.function_feed",
    "runnel.connect.jdbc.feed",
    "runnel.connect.jdbc.drivers.mysql",
    "runnel.connect.jdbc.drivers.sqlite",
    "runnel.connect.sinks.table_change",
    "runnel.connect.sinks.sql.sql_sink",
    "runnel.connect.sinks.folder_sink",
    "runnel.connect.sinks.kafka_sink",
    "runnel.connect.sinks.webhook_sink",
    "runnel.declare.api.files",
    "runnel.declare.api.jdbc",
    "runnel.declare.api.kafka",
    "runnel.declare.api.http",
    "runnel.declare.api.sink",
    "runnel.declare.api.webhook",
)
_OTHERS = "confluent_kafka.admin adbc_driver_postgresql.dbapi pymysql requests pyexpat"
_context.set_forkserver_preload(["tests.faults.workload", *_RUNS, *_OTHERS.split(), "tests.faults.gc_freeze"])


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
