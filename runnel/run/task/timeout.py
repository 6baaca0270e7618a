"""Stop a task that exceeds its timeout."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.run.step_threads import INTERRUPT_SECONDS

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.run.run_context import RunContext


@contextmanager
def limit_time(run_context: "RunContext", task: "Task") -> Iterator[None]:
    """Stop a task at its timeout and raise RUN_TIMEOUT: cancel its Spark jobs, interrupt its Python code.

    A task that does not end within a short grace period, because it waits in C code, is abandoned by the run.
    """
    seconds = task.options.timeout_seconds
    if seconds is None:
        yield
        return
    run_context.step_threads.settle(task.table)  # of an earlier attempt
    timed_out, ended = threading.Event(), threading.Event()

    def stop_task() -> None:
        run_context.step_threads.time_out(task.table, _timeout_error(task, seconds))
        timed_out.set()
        while not ended.is_set():  # again and again: the next job may not have started yet
            run_context.interrupt(task.table)
            ended.wait(INTERRUPT_SECONDS)

    timer = threading.Timer(seconds, stop_task)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        ended.set()
        if timed_out.is_set():
            raise _timeout_error(task, seconds) from error
        raise
    finally:
        ended.set()
        timer.cancel()
    if timed_out.is_set():
        raise _timeout_error(task, seconds)


def _timeout_error(task: "Task", seconds: float) -> RunnelError:
    what = f"`{task.table}` took longer than its timeout of {seconds:g} seconds and was stopped"
    return RunnelError("RUN_TIMEOUT", what, at=str(task.place), fix="raise timeout=, or make the task smaller")
