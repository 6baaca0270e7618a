"""Hand a wish to the `runnel up` of this project over HTTP, and follow its run, without importing anything large.

Whatever is out of the ordinary gives None: then the wish goes into the queue by way of the catalog, which says what is
wrong, or the run is followed there.
"""

import http.client
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runnel.lake.author import default_author
from runnel.run.results.run_result_json import SHOWN, STOPPING, event_of, ran_of
from runnel.service import instance_file

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.project.planning.run_request import Wish
    from runnel.run.results.run_result import Ran, Watch

_SECONDS = 10.0
_SILENT_SECONDS = 60.0  # a service that is well says something more often
_AWAY = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)


def hand_over(settings: "Settings", wish: "Wish", message: str | None, overrides: Sequence[str]) -> "Handed | None":
    """Return the run that the service of this project queued, where it is up and has a worker."""
    here = instance_file.found(settings.home)
    token = instance_file.token(settings.home)
    if (
        here is None
        or token is None
        or here.catalog != instance_file.catalog_of(settings.catalog)
        or wish.days is not None
    ):
        return None
    body = {
        "select": list(wish.select),
        "exclude": list(wish.exclude),
        "branch": wish.branch,
        "full_refresh": wish.full_refresh,
        "verify": wish.verify,
        "message": message,
        "set": list(overrides),
        "author": default_author(),
        "now": True,
    }
    line = _Line(here.url, token)
    try:
        return Handed(line, str(line.ask("POST", "/runs", body)["run"]))
    except _AWAY:
        line.close()
        return None


class Handed:
    """A run that a service has queued. `seen` is the number of the last event that was shown."""

    def __init__(self, line: "_Line", run: str) -> None:
        self.run, self.seen = run, 0
        self._line = line

    def follow(self, watch: "Watch | None", tell: Callable[[str], None]) -> "Ran | None":
        """Return what became of the run when it has ended, telling what happens until then; None where that is lost.

        Ctrl-C asks to stop the run, and waits for the truth; a second one leaves it alone.
        """
        try:
            try:
                self._watch(watch)
            except KeyboardInterrupt:
                self._line.close()  # in the middle of an answer
                self._line.ask("POST", f"/runs/{self.run}/cancel", {})
                tell(STOPPING)
                self._watch(watch)
            found = self._line.ask("GET", f"/runs/{self.run}")
        except _AWAY:
            return None
        finally:
            self._line.close()
        return ran_of(found["run"], found["state"], found["branch"], found["commit"], found["outcome"])

    def _watch(self, watch: "Watch | None") -> None:
        """Show what happens in the run until it has ended."""
        has_ended = False
        for number, event in self._line.events(f"/runs/{self.run}/events?after={self.seen}"):
            has_ended, self.seen = number is None, number or self.seen
            if watch is not None and event.get("kind") in SHOWN:
                watch(event_of(event))
        if not has_ended:
            raise ValueError("the events ended before the run did")


class _Line:
    """One connection to the REST API; whatever is no success raises one of `_AWAY`."""

    def __init__(self, url: str, token: str) -> None:
        place = urlsplit(url)
        self._http = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_SECONDS)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._headers |= {"traceparent": trace} if (trace := os.environ.get("TRACEPARENT")) else {}

    def ask(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to a request."""
        headers = {"Idempotency-Key": secrets.token_urlsafe(24)} if body is not None else {}
        with self._answer(verb, path, json.dumps(body) if body is not None else None, headers) as answer:
            return json.loads(answer.read())

    def events(self, path: str) -> Iterator[tuple[int | None, dict[str, Any]]]:
        """Yield events as they come, each with its number; the end has none."""
        with self._answer("GET", path, None, {"Accept": "text/event-stream"}) as answer:
            assert self._http.sock is not None
            self._http.sock.settimeout(_SILENT_SECONDS)
            number = None
            for line in iter(answer.readline, b""):
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "data":
                    yield number, json.loads(value)
                    number = None

    def close(self) -> None:
        self._http.close()

    def _answer(self, verb: str, path: str, body: str | None, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        self._http.request(verb, f"/api/v1{path}", body, {**self._headers, **headers})
        answer = self._http.getresponse()
        if answer.status >= 300:
            answer.read()
            raise ValueError(answer.reason)
        return answer
