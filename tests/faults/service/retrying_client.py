"""Ask a service over HTTP as a patient client does: what is not acknowledged is asked again, with the same key."""

import http.client
import json
import threading
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from tests.service.running_service import until

_PAUSE_SECONDS = 0.3
_PATIENCE_SECONDS = 240.0
_AGAIN = frozenset({409, 500, 502, 503, 507})  # under way, a defect that a crash may be, away, no room


class Client:
    """One who asks. `stop` ends its patience."""

    def __init__(self, url: str, token: Path, stop: threading.Event | None = None) -> None:
        self.url = url
        self._token = token
        self._stop = stop or threading.Event()

    def get(self, path: str, seconds: float = 10) -> Any:
        """Return an answer; raises where there is none."""
        return self._ask(urllib.request.Request(self.url + path), seconds)

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """Ask until it is acknowledged, and return the answer; None where it was told to stop before."""
        found, told = None, ""

        def is_acknowledged() -> bool:
            nonlocal found, told
            try:
                found = self.post_once(path, body, key=key)
                return True
            except urllib.error.HTTPError as error:
                told = f"{error.code}: {error.read().decode(errors='replace')[:500]}"
                assert error.code in _AGAIN, f"{path} was refused with {told}"
            except (OSError, http.client.HTTPException) as error:
                told = str(error)
            return self._stop.is_set()

        key = key or uuid.uuid4().hex
        until(is_acknowledged, _PATIENCE_SECONDS, lambda: f"{path} is not acknowledged: {told}", _PAUSE_SECONDS)
        return found

    def post_once(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """Ask once, and return the answer; raises where there is none."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or uuid.uuid4().hex}
        data = json.dumps(body).encode() if body is not None else b""
        return self._ask(urllib.request.Request(self.url + path, data, headers), 30)

    def await_up(self, seconds: float) -> None:
        """Wait until somebody answers."""
        until(self._is_up, seconds, lambda: "nobody answers")

    def _is_up(self) -> bool:
        try:
            self.get("/api/v1/status")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _ask(self, request: urllib.request.Request, seconds: float) -> Any:
        request.add_header("Authorization", f"Bearer {self._token.read_text().strip()}")
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)
