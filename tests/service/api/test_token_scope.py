"""Tokens over REST and on the command line: made once, listed without their text, revoked, and kept to their limits."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import runnel as rn
from runnel.cli.main import main
from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.control import tokens
from runnel.lake.store import Store
from tests.service.api.api_server import Api


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], api: Api) -> Callable[..., Any]:
    """Return a function that gives what a command prints: its JSON, or its text."""
    monkeypatch.chdir(api.lake.settings.root)

    def run(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["runnel", *words])
        capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            assert end.code == 2
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return run


def test_over_rest(api: Api) -> None:
    made = api.post("/tokens", {"name": "bob", "scope": "write"}, 201, key="k")
    assert api.ask("GET", "/token", secret=made["secret"]).json()["token"] == "bob"
    listed = api.get("/tokens")["items"]
    assert [(one["token"], one["scope"]) for one in listed] == [("ada", "admin"), ("bob", "write")]
    assert "secret" not in str(listed)
    with api.lake.store.db.read_transaction() as connection:
        kept = connection.execute(sa.select(schema.answers)).all(), connection.execute(sa.select(schema.tokens)).all()
    assert made["secret"] not in str(kept), "neither the token nor the answer is kept"
    assert api.post("/tokens", {"name": "bob"}, 422)["code"] == "TOKEN_EXISTS"
    assert api.ask("GET", "/tokens", secret=made["secret"]).json()["code"] == "TOKEN_FORBIDDEN"
    assert api.ask("POST", "/tokens", secret=made["secret"], json={"name": "eve"}).status_code == 403
    assert api.ask("DELETE", "/tokens/ada", secret=made["secret"]).status_code == 403
    assert api.ask("DELETE", "/tokens/ada").json()["code"] == "TOKEN_OWN"
    assert api.ask("DELETE", "/tokens/bob").json()["revoked_at"] is not None
    assert api.ask("GET", "/token", secret=made["secret"]).status_code == 401
    assert api.ask("DELETE", "/tokens/bbo").json()["code"] == "TOKEN_UNKNOWN"


def test_on_the_command_line(api: Api, cli: Callable[..., Any]) -> None:
    secret = cli("token", "create", "bob").strip()
    assert api.ask("GET", "/token", secret=secret).json()["scope"] == "read"
    made = cli("token", "create", "eve", "--tables", "dws.*, ods.orders", "--branch", "main", "--json")
    assert (made["tables"], made["branch"], made["scope"]) == (["dws.*", "ods.orders"], "main", "read")
    assert "read dws.*, ods.orders of main" in cli("token", "list")
    assert [one["token"] for one in cli("token", "list", "--json")] == ["ada", "bob", "eve"]
    assert cli("token", "revoke", "bob", "--json")["revoked_at"] is not None
    assert api.ask("GET", "/token", secret=secret).status_code == 401
    assert (
        cli("token", "create", "x", "--scope", "write", "--tables", "ods.*", "--json")["error"]["code"]
        == "TOKEN_LIMITS"
    )
    assert cli("token", "create", "x", "--branch", "nowhere", "--json")["error"]["code"] == "BRANCH_UNKNOWN"
    assert cli("token", "create", "x", "--tables", "orders", "--json")["error"]["code"] == "TOKEN_TABLES"
    assert cli("token", "revoke", "evee", "--json")["error"]["what"].endswith("close: `eve`")


def test_limits_are_kept(both: Store) -> None:
    secret = tokens.create(both.db, "bob", "read", tables=("dws.*",), branch="main")
    found = both.db.read(lambda connection: tokens.verify(connection, secret))
    assert found is not None and found.is_limited and (found.tables, found.branch) == (("dws.*",), "main")
    assert found.can_see_table("dws.day") and not found.can_see_table("ods.day") and not found.can_see_table("xdws.day")
    assert not both.db.read(lambda c: tokens.verify(c, tokens.create(both.db, "eve", "read"))).is_limited  # type: ignore[union-attr]


OF_TABLES = {
    "its table": ("GET", "/tables/ods.orders", None, 200),
    "its rows": ("GET", "/tables/ods.orders/rows", None, 200),
    "its checks": ("GET", "/tables/ods.orders/checks", None, 200),
    "a query of it": ("POST", "/query", "select count(*) as n from ods.orders", 200),
    "a query of nothing": ("POST", "/query", "select 1 as x", 200),
    "another table": ("GET", "/tables/raw.docs", None, 403),
    "rows of another": ("GET", "/tables/raw.docs/rows", None, 403),
    "spelt otherwise": ("GET", "/tables/raw%2Edocs/rows", None, 403),
    "its files": ("GET", "/files/raw.docs", None, 403),
    "one of its files": ("GET", "/files/raw.docs/in/orders.csv", None, 403),
    "a query of another": ("POST", "/query", "select path from raw.docs", 403),
    "in a part of a query": ("POST", "/query", "select (select count(*) from raw.docs) as n from ods.orders", 403),
    "below a WITH": ("POST", "/query", "with x as (select * from raw.docs) select count(*) as n from x", 403),
    "by a name that a WITH hides": ("POST", "/query", "with docs as (select 1 as a) select * from raw.docs", 403),
    "why, which tells of inputs": ("GET", "/tables/ods.orders/why", None, 403),
    "the history": ("GET", "/commits", None, 403),
    "a commit": ("GET", "/commits/main", None, 403),
    "a difference": ("GET", "/diff?a=main&b=dev", None, 403),
    "branches": ("GET", "/branches", None, 403),
    "runs": ("GET", "/runs", None, 403),
    "events": ("GET", "/events", None, 403),
    "status": ("GET", "/status", None, 403),
    "alarms": ("GET", "/alarms", None, 403),
    "all checks": ("GET", "/checks", None, 403),
    "rows set aside": ("GET", "/quarantine/ods.orders", None, 403),
    "to discard rows": ("DELETE", "/quarantine/ods.orders", None, 403),
    "tokens": ("GET", "/tokens", None, 403),
    "to write": ("PUT", "/files/ods.orders/x", None, 403),
    "to remove": ("DELETE", "/files/ods.orders?glob=x", None, 403),
}


@pytest.mark.parametrize(("method", "path", "sql", "status"), OF_TABLES.values(), ids=OF_TABLES)
def test_a_token_for_some_tables(seen: Api, method: str, path: str, sql: str | None, status: int) -> None:
    secret = _token(seen, "of-orders", ("ods.*",), None)
    found = seen.ask(method, path, secret=secret, json={"sql": sql} if sql else None)
    assert found.status_code == status, found.text
    if status == 403:
        assert found.json()["code"] in ("TOKEN_LIMITED", "TOKEN_FORBIDDEN")


def test_it_is_not_told_of_others(seen: Api) -> None:
    secret = _token(seen, "of-orders", ("ods.*",), None)
    assert [one["table"] for one in seen.ask("GET", "/tables", secret=secret).json()["items"]] == ["ods.orders"]
    near = _token(seen, "of-docs", ("raw.d*",), None)
    assert "close" not in seen.ask("GET", "/tables/raw.doc", secret=near).json()["what"]
    found = seen.session.get(f"{seen.url}/metrics", headers={"Authorization": f"Bearer {secret}"})
    assert found.status_code == 403


REFS = {"main": 403, "dev": 200, "dev~1": 200, "v1": 403, "main~1": 403, "deva": 403, "dev&at=main": 403, "": 403}


@pytest.mark.parametrize(("ref", "status"), REFS.items(), ids=REFS)
def test_a_token_for_one_branch(seen: Api, ref: str, status: int) -> None:
    secret = _token(seen, "of-dev", None, "dev")
    assert seen.ask("GET", f"/tables/ods.orders/rows?at={ref}", secret=secret).status_code == status
    if "&" not in ref and ref:
        sql = {"sql": "select count(*) as n from ods.orders", "at": ref}
        assert seen.ask("POST", "/query", secret=secret, json=sql).status_code == status


def test_commits_of_one_branch(seen: Api) -> None:
    secret = _token(seen, "of-dev", None, "dev")
    shared, own = seen.lake.store.commit("v1").id, seen.lake.store.commit("dev").id
    other = seen.lake.store.commit("main").id
    for commit, status in ((shared, 200), (own, 200), (other, 403), (own[:8], 200)):
        assert seen.ask("GET", f"/tables?at={commit}", secret=secret).status_code == status


def test_in_python(seen: Api) -> None:
    secret = _token(seen, "of-orders", ("ods.*",), None)
    with rn.open(seen.url, token=secret) as lake:
        assert lake.tables() == ["ods.orders"] and len(lake.query("select * from ods.orders").rows()) == 3
        with pytest.raises(Mistake) as error:
            lake.ls("raw.docs")
        assert (error.value.code, error.value.exit_code) == ("TOKEN_LIMITED", 2)
    docs = _token(seen, "of-docs", ("raw.d*",), None)
    with rn.open(seen.url, token=docs) as lake:
        assert lake.get("raw.docs", seen.lake.settings.root / "out", "in/m*").written == 1


_made: dict[tuple[str, str], str] = {}


def _token(api: Api, name: str, tables: tuple[str, ...] | None, branch: str | None) -> str:
    """Return a limited token of the served shop, made once."""
    if (api.url, name) not in _made:
        _made[api.url, name] = tokens.create(api.lake.store.db, name, "read", tables=tables, branch=branch)
    return _made[api.url, name]
