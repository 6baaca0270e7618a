"""What the service stores of its answers: nothing of queries, and little of others."""

import threading
import time

import pytest
import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.control import queue_entry, run_claims, workers
from runnel.service.api.middleware import idempotency
from tests.service.api.api_server import Api

QUERY = {"sql": "select count(*) as n from ods.orders"}


def stored(api: Api, table: sa.Table) -> list[object]:
    return list(api.lake.store.db.read(lambda connection: connection.execute(sa.select(table)).all()))


def test_a_repeated_query_is_answered_again(api: Api) -> None:
    assert api.post("/query", QUERY, key="k")["rows"] == [[3]]
    assert stored(api, schema.answers) == []
    api.post("/merge", {"branch": "dev"})
    assert api.post("/query", QUERY, key="k")["rows"] == [[4]]
    assert api.post("/query", {"sql": "select 1 as one from ods.orders limit 1"}, key="k")["rows"] == [[1]]


def test_an_answer_that_is_too_large_is_not_stored_and_nothing_is_done_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_STORED_BYTES", 20)
    assert api.post("/branches", {"name": "fix"}, 201, key="k")["branch"] == "fix"
    again = api.post("/branches", {"name": "fix"}, 409, key="k")
    assert again["code"] == "ANSWER_NOT_STORED" and again["fix"]
    assert "fix" not in str(stored(api, schema.answers))
    monkeypatch.undo()
    assert api.post("/branches", {"name": "fix2"}, 201, key="k2") == api.post(
        "/branches", {"name": "fix2"}, 201, key="k2"
    )


@pytest.mark.parametrize("state", [queue_entry.SUCCEEDED, "failed"])
def test_what_a_worker_answered_to_a_query_is_not_stored_once_it_was_read(api: Api, state: str) -> None:
    db = api.lake.store.db
    workers.record_state(db, "w1", workers.WORKER, "ready", {})

    def answer_query() -> None:
        while (claimed := run_claims.claim(db, "w1", ("query",))) is None:
            time.sleep(0.02)
        rows = {"columns": ["n"], "rows": [[3]], "engine": "spark", "seconds": 0.1, "at": "c", "more": False}
        run_claims.finish(db, claimed.claim, state, rows | {"error": {"code": "SQL_BROKEN", "what": "no"}})

    worker = threading.Thread(target=answer_query)
    worker.start()
    answer = api.ask("POST", "/query", json={**QUERY, "engine": "spark"})
    worker.join()
    assert answer.json().get("rows", []) == ([[3]] if state == queue_entry.SUCCEEDED else [])
    assert stored(api, schema.queue) == []
