"""Answers by key: one request does the work, whoever repeats it gets the same answer."""

import subprocess
import sys
import threading

import pytest

from runnel.errors import Conflict, Mistake
from runnel.lake.catalog import schema
from runnel.lake.control import idempotency_keys
from runnel.lake.control.idempotency_keys import ClaimedKey, StoredResponse
from runnel.lake.leases import pins
from runnel.lake.store import Store

LONG_AGO = "2000-01-01T00:00:00.000000Z"


def take(store: Store, request: str = "POST /runs {}", key: str = "k") -> ClaimedKey:
    found = idempotency_keys.claim_key(store.db, key, request)
    assert isinstance(found, ClaimedKey)
    return found


def set_all(store: Store, **values: object) -> None:
    store.db.write(lambda connection: connection.execute(schema.answers.update().values(**values)))


def test_the_same_request_gets_the_same_answer(both: Store) -> None:
    idempotency_keys.store_response(both.db, take(both), StoredResponse(202, '{"run": "ü"}'))
    assert idempotency_keys.claim_key(both.db, "k", "POST /runs {}") == StoredResponse(202, '{"run": "ü"}')
    with pytest.raises(Mistake, match="already used for a different request"):
        idempotency_keys.claim_key(both.db, "k", "POST /runs {other}")
    assert isinstance(idempotency_keys.claim_key(both.db, "k\0", "POST /runs {other}"), ClaimedKey)


def test_two_at_once(both: Store) -> None:
    """Of many that come at the same time one is told to do it."""
    found: list[object] = []

    def ask() -> None:
        try:
            found.append(idempotency_keys.claim_key(both.db, "k", "a"))
        except Conflict as error:
            found.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(one, ClaimedKey) for one in found) == 1
    assert found.count("KEY_UNDER_WAY") == 7


def test_dropped_may_be_repeated(both: Store) -> None:
    idempotency_keys.release_key(both.db, take(both))
    take(both)


def test_what_a_dead_process_took_is_done_by_the_next(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = pins.current_lease_owner().rpartition(":")[0]
    with monkeypatch.context() as patch:
        patch.setattr(idempotency_keys, "current_lease_owner", lambda: f"{host}:{ended.pid}")
        lost = take(both)
    mine = take(both)
    idempotency_keys.store_response(both.db, lost, StoredResponse(200, "late"))
    with pytest.raises(Conflict):
        idempotency_keys.claim_key(both.db, "k", "POST /runs {}")
    idempotency_keys.store_response(both.db, mine, StoredResponse(200, "mine"))
    assert idempotency_keys.claim_key(both.db, "k", "POST /runs {}") == StoredResponse(200, "mine")


def test_what_is_not_heard_of_is_done_by_the_next(both: Store) -> None:
    take(both)
    set_all(both, at=LONG_AGO)
    take(both)


def test_a_day_later_it_is_forgotten(both: Store) -> None:
    idempotency_keys.store_response(both.db, take(both), StoredResponse(200, "x"))
    assert idempotency_keys.delete_expired(both.db) == 0
    set_all(both, at=LONG_AGO)
    take(both, "another request")
    set_all(both, at=LONG_AGO)
    assert idempotency_keys.delete_expired(both.db) == 1
