"""Which owner of a lease has ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runnel.lake.leases.expiry import is_lease_owner_dead

HOST = socket.gethostname()


def test_a_process_that_runs_or_is_elsewhere_is_not_dead() -> None:
    assert not is_lease_owner_dead(f"{HOST}:{os.getpid()}")
    assert not is_lease_owner_dead(f"{HOST}-other:{2**22 + 1}")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="shows the states of processes in /proc")
def test_a_killed_process_is_dead_even_if_its_parent_has_not_noticed() -> None:
    """A container often has no process that asks how others ended: they stay in the list of processes."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = f"{HOST}:{child.pid}"
    try:
        assert not is_lease_owner_dead(owner)
        os.kill(child.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not is_lease_owner_dead(owner):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert Path(f"/proc/{child.pid}/stat").exists(), "it is still listed"
    finally:
        child.kill()
        child.communicate()
    assert is_lease_owner_dead(owner)
