"""Look at the catalog for what is wrong, and raise or end alarms. Of several services one looks at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from runnel.lake.catalog.database import clock, moment, stamp
from runnel.lake.control import alarms, backfills, declarations, run_queue, schedules, workers
from runnel.lake.control.leader_lease import Turn
from runnel.lake.flow_state import sink_positions, streams
from runnel.lake.flow_state.last_published import made_at
from runnel.service.alarms.debounce import Patience
from runnel.service.alarms.failure_alarms import failures
from runnel.service.alarms.health_alarms import (
    no_room_left,
    nobody_works,
    schedules_unknown,
    schedules_wrong,
    sinks_wrong,
    streams_wrong,
)
from runnel.service.alarms.lateness_alarms import lateness, timed_of, with_deadlines
from runnel.service.alarms.run_outcomes import History

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.declarations import Declared
    from runnel.lake.control.run_queue import Queued
    from runnel.lake.control.schedules import Standing
    from runnel.service.server.scheduler import Problem

_PASSING = ("schedule", "stream", "sink", "worker", "disk")  # kinds that may pass by themselves


@dataclass(frozen=True)
class _Facts:
    declared: "Declared"
    standing: "list[Standing]"
    waiting: "list[Queued]"
    troubles: "list[Alarm]"  # that may pass
    known: "list[Alarm]"


class Watchman:
    """Who looks. `now` is a clock, by default the database's; `schedule_problems` is what the scheduler met.

    `are_declared` tells whether a worker has declared the schedules since the service started.
    """

    def __init__(
        self,
        db: "Database",
        now: Callable[[], datetime] | None = None,
        schedule_problems: "Callable[[], Mapping[str, Problem]]" = dict,
        are_declared: Callable[[], bool] = lambda: True,
    ) -> None:
        self._db = db
        self._are_declared = are_declared
        self._schedule_problems = schedule_problems
        self._now = now or (lambda: moment(db.read(clock)))
        self._turn = Turn(db, "alarms")
        self._history: History | None = None
        self._patience: Patience | None = None

    def look(self) -> None:
        """Raise what is wrong now, and end what is no more; nothing where another does."""
        if not self._turn.take():
            self._history = self._patience = None  # what was seen may be old when it is our turn
            return
        now = self._now()
        facts = self._db.read(lambda connection: _facts(connection, now))
        history = self._history = self._history or History()
        history.read(self._db)  # after the queue, so that what ends meanwhile is in one of them
        if self._patience is None:
            self._patience = Patience([one for one in facts.known if one.kind in _PASSING], now)
        alarms.settle(self._db, self._wrong(facts, history, self._patience, now), now)

    def _wrong(self, facts: _Facts, history: History, patience: Patience, now: datetime) -> "list[Alarm]":
        failed = history.failed()
        tables = {one.table for one in with_deadlines(facts.declared)} | {
            name for one in failed for name, _ in one.failed
        }
        made = self._db.read(lambda connection: made_at(connection, "main", tables))
        made |= {table: max(at, made.get(table, "")) for table in tables if (at := history.made_at(table))}
        timed = timed_of(facts.standing, history, facts.waiting, now)
        problems = self._schedule_problems().values()
        lasting = schedules_wrong([one for one in problems if not one.is_passing], facts.declared)
        passing = schedules_wrong([one for one in problems if one.is_passing], facts.declared)
        if not self._are_declared():
            passing += schedules_unknown([one.name for one in facts.standing if one.paused_at is None], now)
        return [
            *failures(failed, facts.declared, [one.name for one in facts.standing], made),
            *lateness(facts.declared, timed, made, now),
            *lasting,
            *patience.lasting([*passing, *facts.troubles], now),
        ]

    def leave(self) -> None:
        """Let another look."""
        self._turn.leave()


def _facts(connection: "Connection", now: datetime) -> _Facts:
    found = declarations.declared(connection)
    waiting = run_queue.entries(connection, states=run_queue.OPEN)
    queued = [one for one in waiting if one.state == run_queue.QUEUED]
    there = len(workers.present(connection, workers.WORKER))
    troubles = [
        *streams_wrong(streams.streams(connection).values(), found),
        *sinks_wrong(sink_positions.states(connection), found),
        *nobody_works(queued, there, backfills.paused_causes(connection), stamp(now)),
        *no_room_left(queued),
    ]
    return _Facts(found, schedules.standing(connection), waiting, troubles, alarms.alarms(connection))
