"""Acknowledge, dismiss and mute alarms. The author of the store is recorded as the person who did it."""

from datetime import timedelta
from typing import TYPE_CHECKING

from runnel.declare.model.flow import ALARM_KINDS
from runnel.declare.options.duration import FIX as DURATION_FIX
from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import alarms, declarations, notifications
from runnel.lake.control.notifications import Mute
from runnel.names import quote_value
from runnel.project.inspection.alarms import AlarmStatus, read_alarm_status

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.control.alarms import Alarm
    from runnel.lake.store import Store

_MIN_PREFIX = 4  # characters of an id that are enough if only one alarm has them
_MAX_MUTE_SECONDS = 366 * 86_400


def acknowledge_alarm(store: "Store", alarm: str, note: str | None = None) -> AlarmStatus:
    """Record that the author takes care of an open alarm: it causes no notification until it is over."""

    def work(connection: "Connection") -> AlarmStatus:
        open_alarm = find_open_alarm(connection, alarm)
        alarms.acknowledge(connection, open_alarm, store.author, read_clock(connection), note)
        return read_alarm_status(connection, open_alarm)

    return store.db.write(work)


def dismiss_alarm(store: "Store", alarm: str, note: str | None = None) -> AlarmStatus:
    """Close an open alarm. It does not come back for the same failure, but it does for a new one."""

    def work(connection: "Connection") -> AlarmStatus:
        open_alarm = find_open_alarm(connection, alarm)
        alarms.dismiss(connection, open_alarm, store.author, read_clock(connection), note)
        return read_alarm_status(connection, open_alarm)

    return store.db.write(work)


def mute_alarms(store: "Store", subject: str, duration: str) -> Mute:
    """Hold back all notifications about an alarm, a kind of alarms or a table for a duration, such as "2 hours"."""
    seconds = parse_duration(duration, "MUTE_DURATION")
    if not 0 < seconds <= _MAX_MUTE_SECONDS:
        raise Mistake("MUTE_DURATION", f"alarms can't be muted for {quote_value(duration)}", fix=DURATION_FIX)
    published_tables = {str(table) for table in store.state("main")}

    def work(connection: "Connection") -> Mute:
        now = read_clock(connection)
        kind, name = _find_subject(connection, subject, published_tables)
        until = format_time(parse_time(now) + timedelta(seconds=seconds))
        mute = Mute(name, kind, until, store.author)
        notifications.write_mute(connection, mute, now)
        return mute

    return store.db.write(work)


def unmute_alarms(store: "Store", subject: str) -> Mute:
    """End the mute of an alarm, a kind of alarms or a table, and return it."""

    def work(connection: "Connection") -> Mute:
        mutes = notifications.read_mutes(connection, read_clock(connection))
        all_alarms = alarms.read_alarms(connection, over_after="")
        names = {subject, *(alarm.key for alarm in _match_alarms(all_alarms, subject))}
        mute = next((mute for mute in mutes if mute.subject in names), None)
        if mute is None:
            what = f"{quote_value(subject)} is not muted" + did_you_mean(subject, (mute.subject for mute in mutes))
            raise Mistake("MUTE_UNKNOWN", what, fix="`runnel alarms` lists what is muted")
        notifications.delete_mute(connection, mute)
        return mute

    return store.db.write(work)


def read_mutes(store: "Store") -> list[Mute]:
    """Return what is muted now, what ends first before the others."""
    return store.db.read(lambda connection: notifications.read_mutes(connection, read_clock(connection)))


def find_open_alarm(connection: "Connection", text: str) -> "Alarm":
    """Return the open alarm with this id, a unique beginning of it, or this key; raise with the nearest if none has."""
    open_alarms = alarms.read_alarms(connection)
    matching_alarms = _match_alarms(open_alarms, text)
    if len(matching_alarms) == 1:
        return matching_alarms[0]
    if matching_alarms:
        what = f"{len(matching_alarms)} open alarms have ids that start with {quote_value(text)}"
        raise Mistake("ALARM_AMBIGUOUS", what, fix="write more of the id; `runnel alarms` lists them")
    for alarm in _match_alarms(alarms.read_alarms(connection, over_after=""), text):
        action = f"{alarm.dismissed_by} dismissed it" if alarm.dismissed_by else "it ended"
        what = f"alarm {quote_value(text)} is over: {action} at {(alarm.over_at or '')[:19].replace('T', ' ')} UTC"
        raise Mistake(
            "ALARM_OVER", what, fix="`runnel alarms` lists the open ones, `runnel alarms --all` also this one"
        )
    candidates = [name for alarm in open_alarms for name in (alarm.id, alarm.key)]
    what = f"there is no open alarm {quote_value(text)}" + did_you_mean(text, candidates)
    raise Mistake("ALARM_UNKNOWN", what, fix="`runnel alarms` lists them")


def _match_alarms(candidates: "list[Alarm]", text: str) -> "list[Alarm]":
    exact = [alarm for alarm in candidates if text in (alarm.id, alarm.key)]
    if exact or len(text) < _MIN_PREFIX:
        return exact
    return [alarm for alarm in candidates if alarm.id.startswith(text)]


def _find_subject(connection: "Connection", text: str, published_tables: set[str]) -> tuple[str, str]:
    """Return the kind and the name of what is to be muted."""
    if text in ALARM_KINDS:
        return "kind", text
    open_alarms = alarms.read_alarms(connection)
    if matching_alarms := _match_alarms(open_alarms, text):
        return "alarm", find_open_alarm(connection, text).key if len(matching_alarms) > 1 else matching_alarms[0].key
    tables = published_tables | set(declarations.read_declarations(connection).tables)
    if text in tables:
        return "table", text
    candidates = [*ALARM_KINDS, *tables, *(name for alarm in open_alarms for name in (alarm.id, alarm.key))]
    what = f"{quote_value(text)} is no open alarm, no kind of alarms and no table" + did_you_mean(text, candidates)
    raise Mistake("MUTE_UNKNOWN", what, fix=f"`runnel alarms` lists alarms; kinds are {', '.join(ALARM_KINDS)}")
