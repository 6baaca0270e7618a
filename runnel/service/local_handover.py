"""Hand a run request to the `runnel up` of this project over HTTP, and follow the run, without large imports.

Any failure returns None: the caller then queues the request through the catalog, which reports what is wrong, or
follows the run there.
"""

import http.client
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runnel.lake.author import default_author
from runnel.run.results.run_result_json import DISPLAYED_EVENTS, STOPPING_MESSAGE, parse_event, parse_run_result
from runnel.service import instance_file

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.model.run_request import RunRequest
    from runnel.run.results.run_result import ProgressCallback, RunResult

_TIMEOUT_SECONDS = 10.0
_SILENT_SECONDS = 60.0  # a healthy service sends heartbeats more often
_SERVICE_ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)


def hand_over_run(settings: "Settings", request: "RunRequest") -> "HandedOverRun | None":
    """Let the project's service queue the run, and return it; None if the service is not up or has no worker."""
    instance = instance_file.find_instance(settings.home)
    token = instance_file.read_token(settings.home)
    if (
        instance is None
        or token is None
        or instance.catalog != instance_file.hash_catalog_url(settings.catalog)
        or request.days is not None
    ):
        return None
    body = {**request.to_body(), "author": default_author(), "now": True}
    connection = _ServiceConnection(instance.url, token)
    try:
        return HandedOverRun(connection, str(connection.request_json("POST", "/runs", body)["run"]))
    except _SERVICE_ERRORS:
        connection.close()
        return None


class HandedOverRun:
    """A run that a service has queued. `last_event_number` is the number of the last event that was shown."""

    def __init__(self, connection: "_ServiceConnection", run: str) -> None:
        self.run, self.last_event_number = run, 0
        self._connection = connection

    def follow(self, watch: "ProgressCallback | None", report: Callable[[str], None]) -> "RunResult | None":
        """Show events until the run has ended, and return its result; None if the connection is lost.

        Ctrl-C asks the service to stop the run and waits for its end; a second Ctrl-C stops waiting.
        """
        try:
            try:
                self._watch_events(watch)
            except KeyboardInterrupt:
                self._connection.close()  # a response is still being read
                self._connection.request_json("POST", f"/runs/{self.run}/cancel", {})
                report(STOPPING_MESSAGE)
                self._watch_events(watch)
            run_json = self._connection.request_json("GET", f"/runs/{self.run}")
        except _SERVICE_ERRORS:
            return None
        finally:
            self._connection.close()
        return parse_run_result(
            run_json["run"], run_json["state"], run_json["branch"], run_json["commit"], run_json["outcome"]
        )

    def _watch_events(self, watch: "ProgressCallback | None") -> None:
        """Pass the run's events to `watch` until the run has ended."""
        has_ended = False
        for number, event in self._connection.read_events(f"/runs/{self.run}/events?after={self.last_event_number}"):
            has_ended, self.last_event_number = number is None, number or self.last_event_number
            if watch is not None and event.get("kind") in DISPLAYED_EVENTS:
                watch(parse_event(event))
        if not has_ended:
            raise ValueError("the events ended before the run did")


class _ServiceConnection:
    """One connection to the REST API. A request that fails raises one of `_SERVICE_ERRORS`."""

    def __init__(self, url: str, token: str) -> None:
        address = urlsplit(url)
        self._http = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_SECONDS)
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
