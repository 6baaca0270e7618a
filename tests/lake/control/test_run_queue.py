"""The queue: who gets what, once, and what becomes of what nobody finishes."""

import os
import socket
import subprocess
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from runnel.errors import Cancelled, Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control import run_claims, run_history, run_queue, workers
from runnel.lake.control.queue_entry import QueueEntry, QueueRequest
from runnel.lake.flow_state import runs
from runnel.lake.store import Store
from runnel.model.run_request import RunRequest


def add(store: Store, *entries: QueueRequest) -> list[str]:
    return store.db.write(lambda connection: run_queue.add(connection, store.db, entries))


def get(store: Store, entry: str) -> QueueEntry:
    return store.db.read(lambda connection: run_queue.find(connection, entry))


def held(store: Store, one: QueueEntry) -> dict[str, str | None]:
    return store.db.read(lambda connection: run_claims.find_valid_claims(connection, [one.claim]))


def want(name: str, **options) -> QueueRequest:
    return QueueRequest(RunRequest((name,)), "ada", **options)


def take(store: Store, worker: str = "w1") -> QueueEntry:
    found = run_claims.claim(store.db, worker)
    assert found is not None
    return found


def test_first_come_first_served_but_for_priority(both: Store) -> None:
    first, second, urgent = want("a"), want("b"), want("c", priority=5)
    for entry in (first, second, urgent):
        add(both, entry)
    assert [take(both).id for _ in range(3)] == [urgent.id, first.id, second.id]
    assert run_claims.claim(both.db, "w1") is None


def test_a_slot_is_queued_once(both: Store) -> None:
    taken = add(both, want("a", slot="nightly/1"), want("a", slot="nightly/1"), want("a", slot="nightly/2"))
    assert len(taken) == 2
    assert run_queue.submit(both.db, want("a", slot="nightly/1")) is None


def test_a_repeated_submit_is_the_same(both: Store) -> None:
    entry = want("a")
    assert run_queue.submit(both.db, entry) == run_queue.submit(both.db, entry) == entry.id


def test_what_has_published_has_succeeded_whatever_comes_after(both: Store) -> None:
    add(both, want("a"))
    one = take(both)
    both.db.write(lambda connection: run_claims.record_commit(connection, one.claim, "c1"))
    assert run_claims.finish(both.db, one.claim, "failed", {"error": {"code": "DISK_FULL"}}, retry=True) == "succeeded"
    found = get(both, one.id)
    assert (found.state, found.commit, found.outcome) == (
        "succeeded",
        "c1",
        {"commit": "c1", "error": {"code": "DISK_FULL"}},
    )


def test_a_run_that_could_not_say_how_it_ended_is_not_running_when_its_entry_has(both: Store) -> None:
    add(both, want("a"))
    one = take(both)
    runs.start(both.db, one.run, "main", "ada", {})
    run_claims.finish(both.db, one.claim, "failed", {}, retry=True)
    found = both.db.read(lambda connection: connection.execute(sa.select(schema.runs)).one())
    assert (found.id, found.state, found.ended_at is None) == (one.id, "failed", False)


def test_an_attempt_that_does_not_count_is_always_followed_by_another(both: Store) -> None:
    add(both, want("a", retries=0))
    for number in (1, 2, 3):
        one = take(both)
        assert one.attempt == number
        assert run_claims.finish(both.db, one.claim, "failed", {}, retry=True, counts_as_attempt=False) == "queued"
        both.db.write(lambda connection: connection.execute(schema.queue.update().values(not_before="")))
    assert run_claims.finish(both.db, take(both).claim, "failed", {}, retry=True) == "failed"


def test_one_at_a_time_of_a_schedule(both: Store) -> None:
    first, second = want("a", cause="schedule/x"), want("b", cause="schedule/x")
    add(both, first), add(both, second)
    taken = take(both)
    assert run_claims.claim(both.db, "w2") is None
    run_claims.finish(both.db, taken.claim, "succeeded", {})
    assert take(both).id == second.id


def test_not_before_its_time(both: Store) -> None:
    soon = format_time(parse_time(both.db.now()) + timedelta(seconds=60))
    add(both, want("a", not_before=soon))
    assert run_claims.claim(both.db, "w1") is None


def test_a_clock_that_jumped_back_lets_nothing_wait_for_a_day(both: Store) -> None:
    add(both, want("a", not_before=format_time(parse_time(both.db.now()) + timedelta(days=1))))
    assert run_claims.claim(both.db, "w1") is not None


def test_workers_that_claim_at_once_share_no_cause(both: Store) -> None:
    for number in range(6):
        add(both, want("a", cause=f"schedule/{number % 2}"))
    found: list[QueueEntry] = []
    gate = threading.Barrier(4)

    def work(name: str) -> None:
        gate.wait()
        if (one := run_claims.claim(both.db, name)) is not None:
            found.append(one)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.cause for one in found) == ["schedule/0", "schedule/1"]


def test_a_failure_that_may_pass_is_tried_again_later(both: Store) -> None:
    entry = want("a", retries=1)
    add(both, entry)
    assert run_claims.finish(both.db, take(both).claim, "failed", {"error": 1}, retry=True) == "queued"
    assert run_claims.claim(both.db, "w1") is None  # it waits a little
    hurry(both)
    second = take(both)
    assert (second.attempt, second.run) == (2, f"{entry.id}-2")
    assert run_claims.finish(both.db, second.claim, "failed", {}, retry=True) == "failed"
    assert get(both, second.run).id == entry.id


def test_a_failure_that_stays_is_not_tried_again(both: Store) -> None:
    add(both, want("a"))
    assert run_claims.finish(both.db, take(both).claim, "failed", {}) == "failed"


def test_what_a_dead_worker_held_is_run_by_another(both: Store) -> None:
    add(both, want("a"))
    lost = take(both)
    assert [one.state for one in run_claims.release_claims(both.db, worker="w1")] == ["queued"]
    assert run_claims.finish(both.db, lost.claim, "succeeded", {}) is None
    assert held(both, lost) == {}
    hurry(both)
    assert take(both, "w2").id == lost.id


def test_a_renewed_claim_is_not_stale(both: Store) -> None:
    add(both, want("a"))
    mine = take(both)
    assert mine.renewed_at is not None
    run_claims.renew(both.db, [mine.claim])
    assert held(both, mine) == {mine.id: None}
    assert run_claims.release_claims(both.db, stale=[(mine.id, mine.renewed_at)]) == []
    renewed = get(both, mine.id).renewed_at
    assert renewed is not None
    assert [one.id for one in run_claims.release_claims(both.db, stale=[(mine.id, renewed)])] == [mine.id]


def test_only_who_holds_the_claim_publishes(both: Store) -> None:
    add(both, want("a"))
    zombie = take(both)
    run_claims.release_claims(both.db, worker="w1")
    hurry(both)
    other = take(both, "w2")
    with pytest.raises(RunnelError, match="another worker has taken the run over"):
        both.db.write(lambda connection: run_claims.record_commit(connection, zombie.claim, "c1"))
    both.db.write(lambda connection: run_claims.record_commit(connection, other.claim, "c2"))
    assert get(both, other.id).commit == "c2"


def test_published_and_then_lost_has_succeeded(both: Store) -> None:
    add(both, want("a"))
    held = take(both)
    both.db.write(lambda connection: run_claims.record_commit(connection, held.claim, "c1"))
    assert [(one.state, one.commit) for one in run_claims.release_claims(both.db, worker="w1")] == [("succeeded", "c1")]


def test_cancelled_before_it_starts(both: Store) -> None:
    entry = want("a")
    add(both, entry)
    assert run_queue.cancel(both.db, entry.id).state == "cancelled"
    assert run_claims.claim(both.db, "w1") is None


def test_cancelled_while_it_runs_is_told_to_its_worker_and_never_published(both: Store) -> None:
    add(both, want("a"))
    mine = take(both)
    asked = run_queue.cancel(both.db, mine.id)
    assert asked.state == "running" and asked.cancel_at is not None
    assert held(both, mine) == {mine.id: asked.cancel_at}
    with pytest.raises(Cancelled):
        both.db.write(lambda connection: run_claims.record_commit(connection, mine.claim, "c1"))
    assert run_claims.finish(both.db, mine.claim, "cancelled", {}) == "cancelled"
    assert run_queue.cancel(both.db, mine.id).state == "cancelled"


def test_cancelled_and_lost_is_cancelled(both: Store) -> None:
    add(both, want("a"))
    held = take(both)
    run_queue.cancel(both.db, held.id)
    assert [one.state for one in run_claims.release_claims(both.db, worker="w1")] == ["cancelled"]


def test_found_by_its_start_or_told_what_is_near(store: Store) -> None:
    entry = replace(want("a"), id="20260102t080000-abcdef01")
    add(store, entry)
    assert get(store, "20260102t080000-abc").id == entry.id
    with pytest.raises(Mistake, match="close: `20260102t080000-abcdef01`"):
        get(store, "20260102t080000-abcdef11")


def test_what_ended_long_ago_is_forgotten(store: Store) -> None:
    old, new = want("a"), want("b")
    add(store, old, new)
    run_claims.finish(store.db, take(store).claim, "succeeded", {})
    assert run_queue.delete_old(store.db, 3600.0) == 0
    assert run_queue.delete_old(store.db, -1.0) == 1
    with store.db.read_transaction() as connection:
        assert len(run_queue.list_entries(connection)) == 1


def hurry(store: Store) -> None:
    """Let what waits for another attempt wait no longer."""
    past = "2000-01-01T00:00:00.000000Z"
    store.db.write(lambda connection: connection.execute(schema.queue.update().values(not_before=past)))


def test_a_run_whose_worker_was_killed_is_shown_as_lost(both: Store) -> None:
    """At once where its process can be looked for, else when it was not heard of for 13 seconds; the claim stays."""
    entry, is_sqlite = QueueRequest(RunRequest(), "ada"), both.db.is_sqlite
    run_queue.submit(both.db, entry)
    held = run_claims.claim(both.db, "w1")
    assert held is not None
    workers.record_state(both.db, "w1", workers.WORKER, "ready", {})

    def shown() -> str:
        return both.db.read(lambda connection: run_history.find_run(connection, entry.id)).state

    def heard(seconds: float, owner: str) -> None:
        then = format_time(parse_time(both.db.now()) - timedelta(seconds=seconds))
        both.db.write(lambda c: c.execute(schema.queue.update().values(renewed_at=then)))
        both.db.write(lambda c: c.execute(schema.workers.update().values(owner=owner)))

    dead = subprocess.Popen(["true"])
    dead.wait()
    here, killed = f"{socket.gethostname()}:{os.getpid()}", f"{socket.gethostname()}:{dead.pid}"
    cases = {(1, here): "running", (1, killed): "lost" if is_sqlite else "running"}
    cases |= {(14, here): "running" if is_sqlite else "lost", (61, here): "lost"}
    for (seconds, owner), expected in cases.items():
        heard(seconds, owner)
        assert shown() == expected, (seconds, owner)
        listed = both.db.read(lambda c: run_history.list_run_records(c, run_history.RunFilter(state="lost"), 10))
        assert [one.id for one in listed] == ([entry.id] if expected == "lost" else [])
    (item,) = both.db.read(lambda c: run_history.list_run_records(c, run_history.RunFilter(), 10))
    assert item.run.detail["error"]["what"].startswith("worker w1, which ran it, last reported at ")
    assert both.db.read(lambda c: run_claims.find_valid_claims(c, [held.claim])) == {entry.id: None}, (
        "the claim keeps its token"
    )


def test_what_a_worker_gives_back_is_queued_again_and_does_not_count(both: Store) -> None:
    entry = QueueRequest(RunRequest(), "ada", retries=0)
    run_queue.submit(both.db, entry)
    run_claims.claim(both.db, "w1")
    (found,) = run_claims.requeue_interrupted(both.db, "w1")
    assert (found.id, found.state, found.attempt, found.retries) == (entry.id, "queued", 1, 1)
    assert (found.outcome or {})["error"]["what"] == (
        "the run was interrupted because its worker was stopped; it is queued again"
    )
