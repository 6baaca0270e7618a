"""Tell an alarm to a command: it gets JSON on standard input."""

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
    from runnel.service.alarms.message import Message

_SECONDS = 30.0


def call(command: str, message: "Message", root: Path, seconds: float = _SECONDS) -> None:
    """Run it in the project's folder, without a shell; raises where it fails, or takes too long and is killed."""
    words = shlex.split(command)
    if (root / words[0]).is_file():
        words[0] = str(root / words[0])
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, cwd=root, start_new_session=True
            )
        except OSError as error:
            raise RunnelError("ALERT_COMMAND", f"`{words[0]}` can't be started: {error.strerror}") from None
        try:
            process.communicate(f"{json.dumps(message.json())}\n".encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise RunnelError("ALERT_COMMAND", f"`{words[0]}` took longer than {seconds:g} s") from None
        if process.returncode != 0:
            said.seek(0)
            lines = said.read(10_000).decode(errors="replace").strip().splitlines()
            told = f": {lines[-1][:300]}" if lines else ""
            raise RunnelError("ALERT_COMMAND", f"`{words[0]}` ended with {process.returncode}{told}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
