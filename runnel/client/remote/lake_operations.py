"""Operate a lake behind a service: the face of `runnel.client.lake_operations`, over HTTP."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from runnel.client.remote import json_values
from runnel.client.remote.lake_reader import RemoteLakeReader

if TYPE_CHECKING:
    from runnel.lake.control.notifications import Mute
    from runnel.lake.control.tokens import Token, TokenWithSecret
    from runnel.project.execution.deliver_sinks import SinkState
    from runnel.project.inspection.alarms import AlarmState, AlarmStatus
    from runnel.run.results.delivery_result import DeliveryResult


class RemoteLakeOperations(RemoteLakeReader):
    """What operators do with a lake behind a service; each method sends one request or a few."""

    def alarms(self, state: "AlarmState" = "open") -> "list[AlarmStatus]":
        """Return the open alarms, those that are over, or all."""
        items = self._connection.iter_items("/alarms", "offset", state=state)
        return [json_values.parse_alarm_status(item) for item in items]

    def acknowledge_alarm(self, alarm: str, *, note: str | None = None) -> "AlarmStatus":
        """Record that you take care of an open alarm, by its id: no further notification until it is over."""
        return json_values.parse_alarm_status(self._connection.post(_alarm_path(alarm, "ack"), {"note": note}))

    def dismiss_alarm(self, alarm: str, *, note: str | None = None) -> "AlarmStatus":
        """Close an open alarm, by its id: it comes back only with a new failure."""
        return json_values.parse_alarm_status(self._connection.post(_alarm_path(alarm, "dismiss"), {"note": note}))

    def mutes(self) -> "list[Mute]":
        """Return what is muted now, what ends first before the others."""
        return [json_values.parse_mute(item) for item in self._connection.get("/alarms/mutes")["items"]]

    def mute(self, subject: str, duration: str) -> "Mute":
        """Send no notification about an alarm, a kind of alarms or a table for a time, such as "2 hours"."""
        return json_values.parse_mute(self._connection.post(_alarm_path(subject, "mute"), {"for": duration}))

    def unmute(self, subject: str) -> "Mute":
        """End a mute, and return it."""
        return json_values.parse_mute(self._connection.post(_alarm_path(subject, "unmute")))

    def tokens(self) -> "list[Token]":
        """Return all tokens of the service by name, without their texts, including revoked ones."""
        return [json_values.parse_token(item) for item in self._connection.get("/tokens")["items"]]

    def create_token(
        self,
        name: str,
        scope: str = "read",
        *,
        tables: Sequence[str] | None = None,
        branch: str | None = None,
        sources: Sequence[str] | None = None,
        expires: str = "365 days",
    ) -> "TokenWithSecret":
        """Create a token, and return it with its text, which is never shown again.

        `tables` and `branch` limit a token of scope read; one of scope push may only push events to `sources`.
        `expires` is a duration, a day, a time or "never".
        """
        limits = {"tables": None if tables is None else list(tables), "branch": branch, "expires": expires}
        body = {"name": name, "scope": scope, **limits, "sources": None if sources is None else list(sources)}
        return json_values.parse_new_token(self._connection.post("/tokens", body))

    def rotate_token(self, name: str, *, grace: str = "0s", expires: str | None = None) -> "TokenWithSecret":
        """Give a token a new text, and return it; the previous text is accepted for a grace period, such as "1h".

        `expires` changes when the token expires.
        """
        body = {"grace": grace, "expires": expires}
        return json_values.parse_new_token(self._connection.post(f"/tokens/{quote(name, safe='')}/rotate", body))

    def revoke_token(self, name: str) -> "Token":
        """Revoke a token; the service refuses it from then on."""
        return json_values.parse_token(self._connection.delete(f"/tokens/{quote(name, safe='')}"))

    def reset_stream(self, task: str, *, branch: str = "main") -> str:
        """Let the stream of a table start from scratch, with all existing rows; return the table."""
        return str(self._connection.post(f"/streams/{quote(task, safe='')}/reset", {"branch": branch})["table"])

    def sinks(self) -> "list[SinkState]":
        """Return the sinks of the project by name: position, backlog and last error of each."""
        return [json_values.parse_sink_state(item) for item in self._connection.get("/sinks")["items"]]

    def deliver(self, sink: str | None = None) -> "list[DeliveryResult]":
        """Deliver pending changes to a sink, or to all, now; return the results of those that lacked something."""
        path = "/sinks/deliver" if sink is None else f"/sinks/{quote(sink, safe='')}/deliver"
        return [json_values.parse_delivery(item) for item in self._connection.post(path)["items"]]

    def reset_sink(self, sink: str) -> str:
        """Let a sink start from scratch, so that all rows are delivered to it again; return its name."""
        return str(self._connection.post(f"/sinks/{quote(sink, safe='')}/reset")["sink"])


def _alarm_path(alarm: str, action: str) -> str:
    """Return the path of an action on an alarm.

    >>> _alarm_path("failed/schedule/nightly", "ack")
    '/alarms/failed%2Fschedule%2Fnightly/ack'
    """
    return f"/alarms/{quote(alarm, safe='')}/{action}"
