"""Stop a task that takes longer than it may."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.declare.flow import Task
    from runnel.run.work import Work


@contextmanager
def within(work: "Work", task: "Task") -> Iterator[None]:
    """Cancel Spark's jobs of a task when its time is up, and say so."""
    seconds = task.options.timeout_seconds
    if seconds is None:
        yield
        return
    late, over = threading.Event(), threading.Event()
    group = f"{work.order.run} {task.table}"

    def stop() -> None:
        while not over.wait(0 if not late.is_set() else 0.5):  # again and again: the next job may not have started yet
            late.set()
            with suppress(Exception):
                work.borrow().session.sparkContext.cancelJobGroup(group)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
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
