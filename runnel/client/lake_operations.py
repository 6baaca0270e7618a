"""Operate a project's lake: alarms, tokens, streams. Each method is one call into the module that does the work."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.client.lake_reader import LakeReader

if TYPE_CHECKING:
    from runnel.lake.control.notifications import Mute
    from runnel.lake.control.tokens import Token, TokenWithSecret
    from runnel.project.inspection.alarms import AlarmState, AlarmStatus


class LakeOperations(LakeReader):
    """What operators do with a lake, in addition to reading it."""

    def alarms(self, state: "AlarmState" = "open") -> "list[AlarmStatus]":
        """Return the open alarms, those that are over, or all."""
        from runnel.project.inspection.alarms import list_alarms

        return list_alarms(self, state)

    def acknowledge_alarm(self, alarm: str, *, note: str | None = None) -> "AlarmStatus":
        """Record that you take care of an open alarm, by its id: no further notification until it is over."""
        from runnel.project.execution.alarm_actions import acknowledge_alarm

        return acknowledge_alarm(self.store, alarm, note)

    def dismiss_alarm(self, alarm: str, *, note: str | None = None) -> "AlarmStatus":
        """Close an open alarm, by its id: it comes back only with a new failure."""
        from runnel.project.execution.alarm_actions import dismiss_alarm

        return dismiss_alarm(self.store, alarm, note)

    def mutes(self) -> "list[Mute]":
        """Return what is muted now, what ends first before the others."""
        from runnel.project.execution.alarm_actions import read_mutes

        return read_mutes(self.store)

    def mute(self, subject: str, duration: str) -> "Mute":
        """Send no notification about an alarm, a kind of alarms or a table for a time, such as "2 hours"."""
        from runnel.project.execution.alarm_actions import mute_alarms

        return mute_alarms(self.store, subject, duration)

    def unmute(self, subject: str) -> "Mute":
        """End a mute, and return it."""
        from runnel.project.execution.alarm_actions import unmute_alarms

        return unmute_alarms(self.store, subject)

    def tokens(self) -> "list[Token]":
        """Return all tokens of the service by name, without their texts, including revoked ones."""
        from runnel.lake.control import tokens

        return self.store.db.read(tokens.list_tokens)

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
        from runnel.lake.control import tokens

        return tokens.create_token(
            self.store.db,
            name,
            scope,
            tables=None if tables is None else tuple(tables),
            branch=branch,
            sources=None if sources is None else tuple(sources),
            expires=expires,
        )

    def rotate_token(self, name: str, *, grace: str = "0s", expires: str | None = None) -> "TokenWithSecret":
        """Give a token a new text, and return it; the previous text is accepted for a grace period, such as "1h".

        `expires` changes when the token expires.
        """
        from runnel.lake.control import tokens

        return tokens.rotate(self.store.db, name, grace=grace, expires=expires)

    def revoke_token(self, name: str) -> "Token":
        """Revoke a token; the service refuses it from then on."""
        from runnel.lake.control import tokens

        return tokens.revoke(self.store.db, name)

    def reset_stream(self, task: str, *, branch: str = "main") -> str:
        """Let the stream of a table start from scratch, with all existing rows; return the table."""
        from runnel.project.execution.run_streams import reset_stream

        return str(reset_stream(self.store, task, branch).table)
