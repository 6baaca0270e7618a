"""A project that `runnel up` serves, and its REST API."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 180
IDLE_SECONDS = 2.0
_PAUSE_SECONDS = 0.002


class Service:
    """The REST API of a project that is up. One connection: each thread takes one of its own."""

    def __init__(self, project: Path, port: int) -> None:
        self.project, self.port = project, port
        self._token = (project / ".runnel" / "token").read_text().strip()
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        self._used = time.monotonic()

    def ask(self, verb: str, path: str, body: object | None = None, **headers: str) -> Any:
        """Return the answer to a request; raise where it is a refusal."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._line.close()  # the other side does too; it is opened again by itself
        known = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers}
        self._line.request(verb, f"/api/v1{path}", sent, known)
        answer = self._line.getresponse()
        said = answer.read()
        self._used = time.monotonic()
        if answer.status >= 300:
            raise RuntimeError(f"{verb} {path}: {answer.status} {said.decode()[:500]}")
        return json.loads(said) if said else None

    def run(self) -> dict[str, Any]:
        """Ask for a run of everything, and return it when it has ended."""
        run = self.ask("POST", "/runs", {})["run"]
        while True:
            found: dict[str, Any] = self.ask("GET", f"/runs/{run}")
            if found["state"] not in ("queued", "running"):
                return found
            time.sleep(_PAUSE_SECONDS)

    def timed_run(self, prepare: Callable[[], None]) -> float:
        """Return the seconds from asking for a run until it succeeded, after `prepare` brought its input."""
        prepare()
        started = time.perf_counter()
        ended = self.run()
        seconds = time.perf_counter() - started
        if ended["state"] != "succeeded":
            raise RuntimeError(f"a run ended as {ended['state']}: {ended.get('error')}")
        return seconds

    def is_ready(self) -> bool:
        """Tell whether a worker has warmed up."""
        return any(one["state"] == "ready" for one in self.ask("GET", "/status")["workers"])

    def close(self) -> None:
        self._line.close()


@contextmanager
def served(
    project: Path, port: int, command: Sequence[str | Path] | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """Serve a project for as long as the block runs; it begins when a worker is warm.

    `command` and `env` serve it with another installation of Runnel than this one.
    """
    with (project / "runnel.toml").open("a") as file:
        file.write(f"[service]\nport = {port}\n")
    up_command = command or [Path(sys.executable).parent / "runnel", "-C", project, "up"]
    with (project / "up.txt").open("w") as said:
        up = subprocess.Popen(up_command, stdout=said, stderr=said, env={**os.environ, **(env or {})})
    try:
        yield _warm(project, port, up)
    finally:
        up.terminate()
        up.wait(PATIENCE_SECONDS)


def _warm(project: Path, port: int, up: "subprocess.Popen[bytes]") -> Service:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and up.poll() is None:
        try:
            service = Service(project, port)
            if service.is_ready():
                return service
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the service did not become ready:\n{(project / 'up.txt').read_text()[-2000:]}")
