"""Deliver a table to a webhook: each commit is one POST of JSON, or several if many rows changed.

Every request has an idempotency key that is the same if the request is sent again.
"""

import hashlib
import hmac
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from runnel.connect.http.declared_auth import use_declared_headers
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.json_rows import encode_json
from runnel.connect.sinks.sink_target import DeliveredRows, StatelessSink
from runnel.declare.model.endpoints import Webhook
from runnel.declare.model.flow import Sink
from runnel.declare.model.secret import Secret, reveal_if_secret
from runnel.errors import RunnelError, Unreachable
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier

if TYPE_CHECKING:
    import requests

    from runnel.connect.sinks.table_change import OutgoingChange

SIGNATURE = "X-Runnel-Signature"
_SIDE_COLUMN = internal_column("side")
_MAX_PAUSE_SECONDS = 5.0
_TRANSIENT_STATUSES = (408, 425, 429)


class WebhookSink(StatelessSink):
    """A webhook URL."""

    def __init__(self, sink: Sink, target: Webhook) -> None:
        self._sink = sink
        self._target = target
        self._url = reveal_if_secret(target.url)
        self._session: requests.Session | None = None

    def __enter__(self) -> Self:
        import requests

        self._session = requests.Session()
        self._session.auth = use_declared_headers
        self._session.headers["User-Agent"] = "runnel"
        for name, value in self._target.headers:
            self._session.headers[name] = reveal_if_secret(value)
        if self._target.token is not None:
            self._session.headers["Authorization"] = f"Bearer {self._target.token.reveal()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.close()

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Send a change part by part; each part is accepted before the next one is sent."""
        added_count, removed_count = change.added_and_removed
        if not added_count + removed_count:
            return DeliveredRows(0)
        summary = {
            "sink": self._sink.name,
            "table": str(change.table),
            "branch": self._sink.branch,
            "commit": change.commit,
            "at": change.step.commit.at,
            "whole": change.is_full,
            "rows_added": added_count,
            "rows_removed": removed_count,
        }
        batch_size = self._target.batch
        part_count = -(-(added_count + removed_count) // batch_size) if self._target.rows else 1
        for number, rows in enumerate(self._split_rows(change, batch_size), 1):
            self._send_part({**summary, "part": number, "parts": part_count, **rows}, f"{change.key}/{number}")
            failpoints.reach(failpoints.SENDING)
        return DeliveredRows(added_count + removed_count)

    def _split_rows(self, change: "OutgoingChange", batch_size: int) -> Iterator[dict[str, list[Any]]]:
        """Yield the rows of each request: added rows, then removed rows, always in the same order."""
        if not self._target.rows:
            yield {}
            return
        names = ", ".join(quote_identifier(column.name) for column in change.columns)
        order = ", ".join(column.key_expression for column in change.columns)
        selects = (
            f"SELECT {number} AS {quote_identifier(_SIDE_COLUMN)}, {names} FROM {view}"
            for number, view in enumerate((change.added_view(), change.removed_view()))
        )
        part: dict[str, list[Any]] = {"added": [], "removed": []}
        for batch in change.open_reader(
            f"FROM ({' UNION ALL '.join(selects)}) ORDER BY {quote_identifier(_SIDE_COLUMN)}, {order}"
        ):
            for row in batch.to_pylist():
                part["removed" if row.pop(_SIDE_COLUMN) else "added"].append(row)
                if len(part["added"]) + len(part["removed"]) == batch_size:
                    yield part
                    part = {"added": [], "removed": []}
        if part["added"] or part["removed"]:
            yield part

    def _send_part(self, payload: dict[str, Any], key: str) -> None:
        import requests

        assert self._session is not None
        body = encode_json(payload).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._target.secret is not None:
            signature = hmac.new(self._target.secret.reveal().encode(), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={signature}"
        try:
            response = self._session.post(
                self._url, data=body, headers=headers, timeout=self._target.timeout_seconds, allow_redirects=False
            )
        except requests.RequestException as error:
            raise self._unreachable_error(f"does not answer ({type(error).__name__})") from None
        if response.status_code in _TRANSIENT_STATUSES or response.status_code >= 500:
            _wait_as_asked(response.headers.get("Retry-After"))
            raise self._unreachable_error(f"answered {response.status_code}")
        if response.status_code >= 300:
            what = f"{self._display_url} answered {response.status_code} to a change of `{self._sink.table}`"
            fix = "correct the url, or the service there; the next run continues"
            raise RunnelError("SINK_REFUSED", what, at=str(self._sink.place), fix=fix)

    def _unreachable_error(self, what: str) -> Unreachable:
        fix = "check that it is running; the next run continues"
        return Unreachable("SINK_UNREACHABLE", f"{self._display_url} {what}", at=str(self._sink.place), fix=fix)

    @property
    def _display_url(self) -> str:
        """Return the URL for messages: a secret URL by its name, any other without user, password and query."""
        if isinstance(self._target.url, Secret):
            return f"the address in {self._target.url}"
        from urllib.parse import urlsplit

        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _wait_as_asked(retry_after: str | None) -> None:
    """Wait as long as the server asks for, but only a few seconds."""
    if retry_after is not None and retry_after.strip().isdigit():
        time.sleep(min(float(retry_after), _MAX_PAUSE_SECONDS))
