"""What must hold of the queue and the history, whatever happened."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from runnel.lake.catalog.database import parse_time
from runnel.lake.control import queue_entry, schedules
from tests.faults.service.shop_project import BEAT_SECONDS, Shop

if TYPE_CHECKING:
    from runnel.lake.control.queue_entry import QueueEntry

_PASSING = frozenset({"RUN_LOST", "SPARK_LOST", "DISK_FULL", "RUN_DISK_FULL", "DATABASE_UNREACHABLE"})


def check_slots(shop: Shop) -> int:
    """See that each time of `beat` was queued once, none is left out, and each has published once; return how many."""
    beat = shop.lake.store.db.read(lambda connection: schedules.find(connection, "beat"))
    entries = shop.entries(cause="schedule/beat")
    found = sorted(_due(one) for one in entries)
    if not found:
        return 0
    last = parse_time(str(beat.cursor["slot"]))
    step = timedelta(seconds=BEAT_SECONDS)
    wanted = [found[0] + number * step for number in range((last - found[0]) // step + 1)]
    assert found == wanted, f"lost: {set(wanted) - set(found)}, not due: {set(found) - set(wanted)}, or twice"
    assert found[0] - parse_time(beat.seen_at) <= step, f"the first times were lost: {beat.seen_at}, {found[0]}"
    failed = [one for one in entries if one.state != queue_entry.SUCCEEDED]
    assert not failed, f"{len(failed)} times have published nothing: {failed[0]}"
    rows = shop.count("ods.beats")
    assert rows == len(found), f"{len(found)} times were due, {rows} rows are there"
    minutes = [one.slot for one in shop.entries(cause="schedule/minute")]
    assert len(minutes) == len(set(minutes)), minutes
    return len(found)


def check_runs(shop: Shop) -> int:
    """See that every run has ended, published at most once, and failed only for what was done to it.

    Returns how many were given up because something died each time that they were tried.
    """
    published = Counter(one.run for one in shop.lake.log())
    given_up = 0
    for one in shop.entries():
        if one.kind != "run":
            continue
        assert not one.is_open, f"it has not ended: {one}"
        names = [one.id, *(f"{one.id}-{number}" for number in range(2, one.attempt + 1))]
        commits = sum(published[name] for name in names)
        nothing = one.state == "nothing" or one.commit is None
        assert commits == (0 if nothing else 1), f"{commits} commits of {one}"
        if one.state == queue_entry.FAILED:
            assert _is_given_up(one), f"it failed: {one}"
            given_up += 1
        else:
            assert one.state in (queue_entry.SUCCEEDED, "nothing"), one
    return given_up


def still_running(shop: Shop) -> list[str]:
    """Return runs whose record says that they are running, although no entry of the queue is.

    What is kept going is a run, too, of which one is under way; on PostgreSQL that of a worker that died shows so
    until its lease has ended.
    """
    open_ = {one.run for one in shop.entries(queue_entry.OPEN_STATES)}
    return [
        one.id
        for one in shop.lake.runs()
        if one.state == "running" and one.id not in open_ and not one.detail.get("up")
    ]


def _is_given_up(one: "QueueEntry") -> bool:
    """Tell whether it was tried as often as it may be, and failed for what may pass each time."""
    outcome = one.outcome or {}
    errors = [outcome.get("error"), *(step.get("error") for step in outcome.get("steps", ()))]
    codes = {error["code"] for error in errors if error}
    return one.attempt > one.retries and bool(codes) and codes <= _PASSING


def _due(one: "QueueEntry") -> datetime:
    slot = (one.slot or "").rpartition("/")[2]
    return datetime.strptime(slot, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
