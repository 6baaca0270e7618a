"""The events of a run from the `runnel up` of this project, which sends them as they happen, without large imports."""

import http.client
import json
import os
import secrets
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runnel.errors import Unreachable
from runnel.project.following.run_follower import FinishedRun, FollowedItem, NumberedEvent

_TIMEOUT_SECONDS = 10.0
_SILENT_SECONDS = 60.0  # a healthy service sends heartbeats more often
_SERVICE_ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)


class ServiceEventSource:
    """The events of a run that the service has queued. Raises Unreachable if the service is lost."""

    def __init__(self, connection: "LocalServiceConnection", run: str) -> None:
        self.run = run
        self._connection = connection

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        """Yield events and the end."""
        try:
            with raise_unreachable():
                has_ended = False
                for number, event in self._connection.read_events(f"/runs/{self.run}/events?after={after}"):
                    if number is not None:
                        yield NumberedEvent(number, event)
                    has_ended = number is None
                if not has_ended:
                    raise ValueError("the events ended before the run did")
                yield FinishedRun.from_json(self._connection.request_json("GET", f"/runs/{self.run}"))
        finally:
            self._connection.close()  # a response may still be being read

    def cancel(self) -> None:
        """Cancel the run."""
        with raise_unreachable():
            self._connection.request_json("POST", f"/runs/{self.run}/cancel", {})


class LocalServiceConnection:
    """One connection to the REST API; it is opened by the first request, also after it was closed."""

    def __init__(self, url: str, token: str, certificate: Path | None = None) -> None:
        self._http = _create_connection(url, certificate)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._headers |= {"traceparent": traceparent} if (traceparent := os.environ.get("TRACEPARENT")) else {}

    def request_json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of the response."""
        headers = {"Idempotency-Key": secrets.token_urlsafe(24)} if body is not None else {}
        with self._send_request(method, path, json.dumps(body) if body is not None else None, headers) as response:
            return json.loads(response.read())

    def read_events(self, path: str) -> Iterator[tuple[int | None, dict[str, Any]]]:
        """Yield events as they arrive, each with its number; the final event has none."""
        with self._send_request("GET", path, None, {"Accept": "text/event-stream"}) as response:
            assert self._http.sock is not None
            self._http.sock.settimeout(_SILENT_SECONDS)
            number = None
            for line in iter(response.readline, b""):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "data":
                    yield number, json.loads(value)
                    number = None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _send_request(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        self._http.request(method, f"/api/v1{path}", body, {**self._headers, **headers})
        response = self._http.getresponse()
        if response.status >= 300:
            response.read()
            raise ValueError(response.reason)
        return response


def _create_connection(url: str, certificate: Path | None) -> http.client.HTTPConnection:
    address = urlsplit(url)
    if certificate is None:
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_SECONDS)
    from runnel.project.following.pinned_connection import PinnedConnection  # ssl takes 15 ms to import

    return PinnedConnection(address.hostname or "", address.port, certificate, _TIMEOUT_SECONDS)


@contextmanager
def raise_unreachable() -> Iterator[None]:
    """Raise Unreachable if the service is lost, refuses, or answers something else."""
    try:
        yield
    except _SERVICE_ERRORS as error:
        what = "the service of this project does not answer"
        raise Unreachable("SERVICE_LOST", what, fix="`runnel status` says how it is") from error
