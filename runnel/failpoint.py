"""Fail on purpose at a named step, so that tests can show what a crash there leaves behind.

`RUNNEL_FAIL=point:kill` ends the process with SIGKILL when it reaches `point`; `point:error` raises, `point:sleep=3`
waits, `point:enospc` raises "no space left on device". `point:kill@4` acts the fourth time. Separate several
with commas. Without the variable a failpoint costs one dictionary look-up.
"""

import errno
import os
import signal
import time
from functools import lru_cache

POINTS: dict[str, str] = {}
"""Every declared failpoint, with what the code has just done when it reaches it."""


class InjectedFault(OSError):
    """The error that a failpoint raises; Runnel never catches it by name."""


def declare(name: str, when: str) -> str:
    """Register a failpoint, once per module, and return its name."""
    POINTS[name] = when
    return name


@lru_cache(maxsize=8)
def _parse_armed(text: str) -> dict[str, tuple[str, int]]:
    armed = {}
    for entry in filter(None, text.split(",")):
        point, _, action = entry.partition(":")
        action, _, nth = action.partition("@")
        armed[point] = (action or "kill", int(nth or 1))
    return armed


_passed: dict[str, int] = {}


def reach(name: str) -> None:
    """Fail as configured if this failpoint is armed."""
    text = os.environ.get("RUNNEL_FAIL")
    if not text:
        return
    armed_action = _parse_armed(text).get(name)
    if armed_action is None:
        return
    action, nth = armed_action
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != nth:
        return
    kind, _, value = action.partition("=")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "sleep":
        time.sleep(float(value or 1))
    elif kind == "enospc":
        raise InjectedFault(errno.ENOSPC, "No space left on device")
    else:
        raise InjectedFault(errno.EIO, f"failpoint {name}")
