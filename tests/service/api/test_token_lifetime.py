"""Tokens expire, are rotated and revoked; what listens with them ends, and nobody inherits their answers."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import requests
import sqlalchemy as sa

import runnel as rn
from runnel.cli.main import main
from runnel.lake.catalog import schema
from runnel.lake.control import tokens, workers
from runnel.lake.control.tokens import Token
from runnel.service.api.middleware import authentication, token_watch
from tests.service.api.api_server import API, Api
from tests.service.api.test_token_scope import cli  # noqa: F401  a fixture

PAST = "2026-01-01T00:00:00.000000Z"


def expire(api: Api, name: str) -> None:
    """Let a token be one that expired long ago."""
    statement = schema.tokens.update().where(schema.tokens.c.name == name).values(expires_at=PAST)
    api.lake.store.db.write(lambda connection: connection.execute(statement))


def test_an_expired_token_is_refused(api: Api) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "read")
    assert api.ask("GET", "/tables", secret=secret).status_code == 200
    expire(api, "bob")
    answer = api.ask("GET", "/tables", secret=secret)
    assert (answer.status_code, answer.json()["code"]) == (401, "TOKEN_EXPIRED")
    assert answer.json()["what"] == f"the token `bob` has expired at {PAST}"
    assert answer.json()["fix"] == "runnel token rotate bob --expires 90d"
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_later_token_of_the_same_name_inherits_no_answers(api: Api) -> None:
    def submit_run(secret: str) -> requests.Response:
        return api.ask("POST", "/runs", secret=secret, json={}, headers={"Idempotency-Key": "k"})

    db = api.lake.store.db
    first = tokens.create(db, "bob", "write")
    run = submit_run(first).json()["run"]
    rotated = tokens.rotate(db, "bob").secret
    assert submit_run(rotated).json()["run"] == run, "it is the same token"
    tokens.revoke(db, "bob")
    answer = submit_run(tokens.create(db, "bob", "write"))
    assert "Idempotency-Replayed" not in answer.headers and answer.json()["run"] != run


def test_rotation_over_rest(api: Api) -> None:
    first = api.post("/tokens", {"name": "bob", "expires": "30d"}, 201)
    second = api.post("/tokens/bob/rotate", {"grace": "1h"}, key="k")
    assert second["id"] == first["id"] and second["previous_until"] < second["expires_at"] == first["expires_at"]
    for secret in (first["secret"], second["secret"]):
        assert api.ask("GET", "/token", secret=secret).json()["token"] == "bob"
    assert api.post("/tokens/bob/rotate", {"expires": "never"})["expires_at"] is None
    for secret in (first["secret"], second["secret"]):
        refusal = api.ask("GET", "/token", secret=secret)
        assert (refusal.status_code, refusal.json()["code"]) in ((401, "TOKEN_INVALID"), (401, "TOKEN_EXPIRED"))
    assert api.post("/tokens/ada/rotate", {}, 409)["code"] == "TOKEN_OWN"
    assert api.post("/tokens/bob/rotate", {"grace": "1 year"}, 422)["code"] == "TOKEN_GRACE"
    assert api.post("/tokens", {"name": "eve", "expires": "2001-01-01"}, 422)["code"] == "TOKEN_EXPIRES"
    writer = tokens.create(api.lake.store.db, "writer", "write")
    assert api.ask("POST", "/tokens/bob/rotate", secret=writer).status_code == 403
    with api.lake.store.db.read_transaction() as connection:
        stored = str([connection.execute(sa.select(table)).all() for table in (schema.answers, schema.tokens)])
    assert second["secret"] not in stored


def test_expiry_and_rotation_in_python_and_on_the_command_line(
    api: Api,
    cli: Callable[..., object],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with rn.open(api.url, token=api.secret) as lake:
        token = lake.create_token("bob").token
        assert token.expires_at is not None and token.expires_at[:4] > token.made_at[:4]
        assert lake.create_token("eve", expires="never").token.expires_at is None
        rotated = lake.rotate_token("eve", grace="1h", expires="2999-01-01")
        assert rotated.token.expires_at == "2999-01-01T00:00:00.000000Z"
        assert api.ask("GET", "/token", secret=rotated.secret).json()["token"] == "eve"
    created = cli("token", "create", "ci", "--expires", "2998-02-03", "--json")
    assert isinstance(created, dict) and created["expires_at"].startswith("2998-02-03")
    again = cli("token", "rotate", "ci", "--grace", "2h", "--expires", "never", "--json")
    assert isinstance(again, dict) and (again["id"], again["expires_at"]) == (created["id"], None)
    for secret in (created["secret"], again["secret"]):
        assert api.ask("GET", "/token", secret=secret).status_code == 200
    listed = str(cli("token", "list"))
    assert "2999-01-01 00:00" in listed and "never" in listed and "last used (UTC)" in listed
    monkeypatch.setattr(sys, "argv", ["runnel", "token", "rotate", "ci"])
    main()
    printed = capsys.readouterr()
    assert printed.out.startswith("rnl_") and "is accepted until" in printed.err


def test_the_last_use_is_listed(api: Api) -> None:
    def read_last_use() -> str | None:
        return next(item["last_used_at"] for item in api.get("/tokens")["items"] if item["token"] == "bob")

    secret = tokens.create(api.lake.store.db, "bob", "read")
    assert read_last_use() is None
    api.ask("GET", "/tables", secret=secret)
    deadline = time.monotonic() + 10
    while (last_use := read_last_use()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert last_use is not None
    api.ask("GET", "/tables", secret=secret)
    assert read_last_use() == last_use, "within a minute it is not recorded again"


ENDS: dict[str, Callable[[Api], object]] = {
    "revoked": lambda api: tokens.revoke(api.lake.store.db, "bob"),
    "expired": lambda api: expire(api, "bob"),
    "rotated": lambda api: tokens.rotate(api.lake.store.db, "bob"),
}


@pytest.fixture
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check tokens more often, so that tests need not wait for seconds."""
    monkeypatch.setattr(token_watch, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(authentication, "_CACHE_SECONDS", 0.05)


@contextmanager
def listening(api: Api, path: str, secret: str) -> Iterator[requests.Response]:
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    with requests.get(api.url + API + path, headers=headers, stream=True, timeout=10) as answer:
        assert answer.status_code == 200
        yield answer


@pytest.mark.usefixtures("checked_often")
@pytest.mark.parametrize("end_token", ENDS.values(), ids=ENDS)
def test_event_streams_end_with_their_token(api: Api, end_token: Callable[[Api], object]) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "read")
    run = api.post("/runs", {}, 202)["run"]
    with listening(api, "/events", secret) as state, listening(api, f"/runs/{run}/events", secret) as events:
        first = next(state.iter_content(None))
        assert first.startswith(b"event: state")
        end_token(api)
        assert list(events.iter_content(None)) == []
        list(state.iter_content(None))  # ends, and not by a timeout
    assert api.ask("GET", "/events", secret=secret).status_code == 401


@pytest.mark.usefixtures("checked_often")
def test_a_request_that_waits_for_a_worker_ends_with_its_token(api: Api) -> None:
    """No worker takes the query; it would be answered after two minutes."""
    db = api.lake.store.db
    secret = tokens.create(db, "bob", "read")
    workers.record_state(db, "w1", workers.WORKER, "ready", {})
    query = {"sql": "select * from ods.orders", "engine": "spark"}

    def revoke_when_queued() -> None:
        while not db.read(lambda connection: connection.execute(sa.select(schema.queue.c.id)).first()):
            time.sleep(0.02)
        tokens.revoke(db, "bob")

    revoking = Thread(target=revoke_when_queued)
    revoking.start()
    answer = api.ask("POST", "/query", secret=secret, json=query)
    revoking.join()
    assert (answer.status_code, answer.json()["code"]) == (401, "TOKEN_INVALID")


def test_a_token_that_stays_valid_goes_on_listening(api: Api, checked_often: None) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "read")
    with listening(api, "/events", secret) as state:
        events = state.iter_content(None)
        next(events)
        time.sleep(0.5)  # five checks
        api.post("/branches", {"name": "fix"}, 201)
        assert b"fix" in next(events)


def test_a_token_says_whether_it_has_expired() -> None:
    assert Token("a", "read", PAST, expires_at=PAST).has_expired("2026-01-01T00:00:00.000000Z")
    assert not Token("a", "read", PAST).has_expired("2999-01-01T00:00:00.000000Z")
