"""Backfills as a queue of chunks: in order, one at a time, waiting where one fails or somebody says so."""

from datetime import date

import pytest

from runnel.errors import Conflict, Mistake
from runnel.lake.control import backfills, run_claims, run_queue
from runnel.lake.store import Store
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest

DAYS = ["2026-01-01", "2026-01-08", "2026-01-15"]


REQUESTS = [RunRequest(("dws.*",), days=DateRange(date.fromisoformat(day), date.fromisoformat(day))) for day in DAYS]


def make(store: Store, name: str = "b1") -> None:
    backfills.create(store.db, name, REQUESTS, "ada")


def state(store: Store, name: str = "b1") -> str:
    return store.db.read(lambda connection: backfills.find(connection, name)).state


def run(store: Store, how: str = "succeeded") -> str:
    held = run_claims.claim(store.db, "w1")
    assert held is not None
    run_claims.finish(store.db, held.claim, how, {})
    return str(backfills.chunk_days(held).first)


def test_chunks_in_order(both: Store) -> None:
    make(both)
    make(both)  # repeated after a lost acknowledgement
    assert state(both) == "running"
    assert [run(both) for _ in DAYS] == DAYS
    assert (state(both), run_claims.claim(both.db, "w1")) == ("succeeded", None)


def test_a_repeated_request_is_the_same_backfill(both: Store) -> None:
    made = [backfills.create(both.db, name, REQUESTS, "ada", key) for name, key in (("b1", "k"), ("b2", "k"))]
    made.append(backfills.create(both.db, "b3", REQUESTS, "ada", "l"))
    assert made == ["b1", "b1", "b3"]
    assert len(both.db.read(run_queue.list_entries)) == 2 * len(DAYS)


def test_one_at_a_time(both: Store) -> None:
    make(both)
    assert run_claims.claim(both.db, "w1") is not None
    assert run_claims.claim(both.db, "w2") is None


def test_paused_after_what_goes_on(both: Store) -> None:
    make(both)
    held = run_claims.claim(both.db, "w1")
    assert held is not None and backfills.pause(both.db, "b1").state == "paused"
    run_claims.finish(both.db, held.claim, "succeeded", {})
    assert run_claims.claim(both.db, "w1") is None
    assert backfills.resume(both.db, "b1").state == "running"
    assert [run(both), run(both)] == DAYS[1:]


def test_a_failing_chunk_holds_up_later_ones_until_it_is_resumed(both: Store) -> None:
    make(both)
    assert run(both, "failed") == DAYS[0]
    assert (state(both), run_claims.claim(both.db, "w1")) == ("failed", None)
    backfills.resume(both.db, "b1")
    assert [run(both) for _ in DAYS] == DAYS
    assert state(both) == "succeeded"
    first = both.db.read(lambda connection: backfills.find(connection, "b1")).chunks[0]
    assert first.run == f"{first.id}-2"


def test_cancelled(store: Store) -> None:
    make(store)
    held = run_claims.claim(store.db, "w1")
    assert held is not None
    found = backfills.cancel(store.db, "b1")
    assert [chunk.state for chunk in found.chunks] == ["running", "cancelled", "cancelled"]
    assert (found.state, found.json()["state"]) == ("cancelled", "cancelled")
    run_claims.finish(store.db, held.claim, "cancelled", {})
    assert (state(store), run_claims.claim(store.db, "w1")) == ("cancelled", None)


def test_others_go_on(store: Store) -> None:
    make(store)
    make(store, "b2")
    backfills.pause(store.db, "b1")
    assert [run(store) for _ in DAYS] == DAYS
    assert (state(store), state(store, "b2")) == ("paused", "succeeded")


def test_what_has_ended_cannot_be_paused(store: Store) -> None:
    make(store)
    for _ in DAYS:
        run(store)
    with pytest.raises(Conflict, match="has ended: succeeded"):
        backfills.pause(store.db, "b1")
    with pytest.raises(Mistake, match="close: `b1`"):
        backfills.pause(store.db, "b11")
