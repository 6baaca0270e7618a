"""Notify by running a command, which gets the alarm as JSON on standard input."""

import json
import os
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.service.alarms.message import AlarmMessage

_TIMEOUT_SECONDS = 30.0


def run_command(command: str, message: "AlarmMessage", root: Path, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
    """Run the command in the project's folder, without a shell; raise if it fails, or takes too long and is killed."""
    arguments = shlex.split(command)
    if (root / arguments[0]).is_file():
        arguments[0] = str(root / arguments[0])
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=root,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnelError("ALERT_COMMAND", f"`{arguments[0]}` can't be started: {error.strerror}") from None
        try:
            process.communicate(f"{json.dumps(message.json())}\n".encode(), timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            raise RunnelError("ALERT_COMMAND", f"`{arguments[0]}` took longer than {timeout_seconds:g} s") from None
        if process.returncode != 0:
            stderr.seek(0)
            lines = stderr.read(10_000).decode(errors="replace").strip().splitlines()
            last_line = f": {lines[-1][:300]}" if lines else ""
            raise RunnelError("ALERT_COMMAND", f"`{arguments[0]}` ended with {process.returncode}{last_line}")


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the command with all processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
