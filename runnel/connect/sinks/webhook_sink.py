"""An address as a sink: each commit is one POST of JSON, or several where many rows changed.

Every request has a key that is the same whenever it is sent again.
"""

import hashlib
import hmac
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.json_rows import as_json
from runnel.connect.sinks.sink_target import Forgetful
from runnel.declare.model.endpoints import Webhook
from runnel.declare.model.flow import Sink
from runnel.declare.model.secret import Secret, revealed
from runnel.errors import RunnelError, Unreachable
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quoted

if TYPE_CHECKING:
    import requests

    from runnel.connect.sinks.table_change import Change

SIGNATURE = "X-Runnel-Signature"
_SIDE = internal_column("side")
_LONGEST_PAUSE_SECONDS = 5.0
_PASSING = (408, 425, 429)


class WebhookOutlet(Forgetful):
    """An address."""

    def __init__(self, sink: Sink, target: Webhook) -> None:
        self._sink = sink
        self._target = target
        self._url = revealed(target.url)
        self._session: requests.Session | None = None

    def __enter__(self) -> Self:
        import requests

        self._session = requests.Session()
        self._session.headers["User-Agent"] = "runnel"
        for name, value in self._target.headers:
            self._session.headers[name] = revealed(value)
        if self._target.token is not None:
            self._session.headers["Authorization"] = f"Bearer {self._target.token.reveal()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.close()

    def take(self, change: "Change") -> int:
        """Send a change, part by part, each accepted before the next one goes."""
        came, went = change.sizes
        if not came + went:
            return 0
        told = {
            "sink": self._sink.name,
            "table": str(change.table),
            "branch": self._sink.branch,
            "commit": change.commit,
            "at": change.step.commit.at,
            "whole": change.is_whole,
            "rows_added": came,
            "rows_removed": went,
        }
        size = self._target.batch
        parts = -(-(came + went) // size) if self._target.rows else 1
        for number, rows in enumerate(self._parts(change, size), 1):
            self._send({**told, "part": number, "parts": parts, **rows}, f"{change.key}/{number}")
            failpoints.reach(failpoints.SENDING)
        return came + went

    def _parts(self, change: "Change", size: int) -> Iterator[dict[str, list[Any]]]:
        """Yield the rows of each request: those that came, then those that went, always in the same order."""
        if not self._target.rows:
            yield {}
            return
        names = ", ".join(quoted(column.name) for column in change.columns)
        order = ", ".join(column.as_key for column in change.columns)
        sides = (
            f"SELECT {number} AS {quoted(_SIDE)}, {names} FROM {view}"
            for number, view in enumerate((change.came(), change.gone()))
        )
        part: dict[str, list[Any]] = {"added": [], "removed": []}
        for batch in change.reader(f"FROM ({' UNION ALL '.join(sides)}) ORDER BY {quoted(_SIDE)}, {order}"):
            for row in batch.to_pylist():
                part["removed" if row.pop(_SIDE) else "added"].append(row)
                if len(part["added"]) + len(part["removed"]) == size:
                    yield part
                    part = {"added": [], "removed": []}
        if part["added"] or part["removed"]:
            yield part

    def _send(self, told: dict[str, Any], key: str) -> None:
        import requests

        assert self._session is not None
        body = as_json(told).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._target.secret is not None:
            made = hmac.new(self._target.secret.reveal().encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={made}"
        try:
            answer = self._session.post(
                self._url, data=body, headers=headers, timeout=self._target.timeout_seconds, allow_redirects=False
            )
        except requests.RequestException as error:
            raise self._unreachable(f"does not answer ({type(error).__name__})") from None
        if answer.status_code in _PASSING or answer.status_code >= 500:
            _pause(answer.headers.get("Retry-After"))
            raise self._unreachable(f"answered {answer.status_code}")
        if answer.status_code >= 300:
            what = f"{self._shown} answered {answer.status_code} to a change of `{self._sink.table}`"
            fix = "correct the url, or what answers there; the next run goes on"
            raise RunnelError("SINK_REFUSED", what, at=str(self._sink.place), fix=fix)

    def _unreachable(self, what: str) -> Unreachable:
        fix = "look whether it runs; the next run goes on"
        return Unreachable("SINK_UNREACHABLE", f"{self._shown} {what}", at=str(self._sink.place), fix=fix)

    @property
    def _shown(self) -> str:
        """Return the address as messages show it: a secret one by its name, any other without what may be secret."""
        if isinstance(self._target.url, Secret):
            return f"the address in {self._target.url}"
        from urllib.parse import urlsplit

        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _pause(after: str | None) -> None:
    """Wait as long as the address asks for, but never long."""
    if after is not None and after.strip().isdigit():
        time.sleep(min(float(after), _LONGEST_PAUSE_SECONDS))
