"""Stop a task that takes longer than it may."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.run.step_threads import INTERRUPT_SECONDS

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.run.run_context import Work


@contextmanager
def within(work: "Work", task: "Task") -> Iterator[None]:
    """Stop a task when its time is up, and say so: its jobs of Spark are cancelled, its Python code is interrupted.

    What does not end by that within a short grace, because it waits in C code, is abandoned by the run.
    """
    seconds = task.options.timeout_seconds
    if seconds is None:
        yield
        return
    work.steps.settle(task.table)  # of an earlier attempt
    late, over = threading.Event(), threading.Event()

    def stop() -> None:
        work.steps.time_out(task.table, _too_late(task, seconds))
        late.set()
        while not over.is_set():  # again and again: the next job may not have started yet
            work.interrupt(task.table)
            over.wait(INTERRUPT_SECONDS)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        over.set()
        if late.is_set():
            raise _too_late(task, seconds) from error
        raise
    finally:
        over.set()
        timer.cancel()
    if late.is_set():
        raise _too_late(task, seconds)


def _too_late(task: "Task", seconds: float) -> RunnelError:
    what = f"`{task.table}` took longer than its timeout of {seconds:g} seconds and was stopped"
    return RunnelError("RUN_TIMEOUT", what, at=str(task.place), fix="raise timeout=, or make the task smaller")
