"""Tokens over REST and on the command line: made once, listed without their text, revoked, and kept to their limits."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import runnel as rn
from runnel.cli.main import main
from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.control import declarations, tokens
from runnel.lake.control.declarations import ProjectDeclarations, SourceDeclaration
from runnel.lake.store import Store
from tests.service.api.api_server import API, Api


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
    "why of a row": ("GET", "/tables/ods.orders/why?row=id%20%3D%201", None, 403),
    "the files of a commit": ("GET", "/commits/main/files", None, 403),
    "the history": ("GET", "/commits", None, 403),
    "a commit": ("GET", "/commits/main", None, 403),
    "a difference": ("GET", "/diff?a=main&b=dev", None, 403),
    "branches": ("GET", "/branches", None, 403),
    "runs": ("GET", "/runs", None, 403),
    "events": ("GET", "/events", None, 403),
    "status": ("GET", "/status", None, 403),
    "alarms": ("GET", "/alarms", None, 403),
    "to acknowledge an alarm": ("POST", "/alarms/x/ack", None, 403),
    "mutes": ("GET", "/alarms/mutes", None, 403),
    "lineage, which tells of others": ("GET", "/tables/ods.orders/lineage", None, 403),
    "sinks": ("GET", "/sinks", None, 403),
    "to deliver": ("POST", "/sinks/ods.orders/deliver", None, 403),
    "to rewind": ("POST", "/sources/ods.orders/rewind", None, 403),
    "to release rows": ("POST", "/quarantine/ods.orders/release", None, 403),
    "to reset a stream": ("POST", "/streams/ods.orders/reset", None, 403),
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


def test_a_tag_is_not_the_branch_that_it_is_named_like(api: Api) -> None:
    api.lake.branch("old", at="v1")
    secret = _token(api, "of-old", None, "old")
    assert api.ask("GET", "/tables/ods.orders?at=old", secret=secret).status_code == 200
    api.ask("DELETE", "/branches/old")
    api.lake.tag("old", "main")
    for ref in ("old", "old~1", "old@2099-01-01T00:00Z", api.lake.store.commit("v1").id):
        answer = api.ask("GET", f"/tables/ods.orders?at={ref}", secret=secret)
        assert (answer.status_code, answer.json()["what"]) == (404, "there is no branch `old`")
    sql = {"sql": "select count(*) as n from ods.orders", "at": "old"}
    assert api.ask("POST", "/query", secret=secret, json=sql).json()["code"] == "BRANCH_UNKNOWN"


def test_near_misses_name_no_hidden_branches_and_tags(api: Api) -> None:
    api.lake.tag("beefed", "main")
    api.lake.branch("devil")
    limited, secret = _token(api, "of-dev", None, "dev"), _token(api, "of-orders", ("ods.*",), None)
    refused = api.ask("GET", "/tables/ods.orders?at=beefe", secret=limited)
    assert (refused.status_code, refused.json()["code"]) == (403, "TOKEN_LIMITED")
    api.ask("DELETE", "/branches/dev")
    texts = [refused.text]
    texts += [api.ask("GET", "/tables/ods.orders?at=dev", secret=limited).text]
    for ref in ("beefe", "devi"):
        texts.append(api.ask("GET", f"/tables/ods.orders?at={ref}", secret=secret).text)
        sql = {"sql": "select count(*) as n from ods.orders", "at": ref}
        texts.append(api.ask("POST", "/query", secret=secret, json=sql).text)
    assert not [text for text in texts if "beefed" in text or "devil" in text]


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


def test_a_token_that_may_only_push_to_one_source(api: Api) -> None:
    """Ask every route of the OpenAPI document, and those beside it."""
    pushed = {name: SourceDeclaration(name, "push", name, ("id",)) for name in ("ods.events", "ods.others")}
    declarations.write_declarations(api.lake.store.db, ProjectDeclarations(sources=pushed))
    made = api.post("/tokens", {"name": "app", "scope": "push", "sources": ["ods.events"]}, 201)
    assert (made["scope"], made["sources"], made["tables"]) == ("push", ["ods.events"], None)
    secret = made["secret"]
    pushed_once = api.ask("POST", "/sources/ods.events/events", secret=secret, json={"id": 1})
    assert (pushed_once.status_code, pushed_once.json()["taken"]) == (202, 1)
    assert api.ask("GET", "/token", secret=secret).json()["sources"] == ["ods.events"]
    refused = [("GET", "/openapi.json"), ("GET", "/nothing"), ("HEAD", f"{API}/token")]
    for path, operations in api.get("/openapi.json")["paths"].items():
        concrete = re.sub(r"\{\w+\}", "ods.others", path)
        refused += [(method.upper(), concrete) for method in operations if path not in ("/health", "/ready")]
    refused.remove(("GET", f"{API}/token"))
    assert len(refused) > 60 and ("POST", f"{API}/sources/ods.others/events") in refused
    for method, path in refused:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = api.session.request(method, api.url + path, headers=headers, json={}, timeout=60)
        assert answer.status_code == 403, (method, path, answer.text)
        if method != "HEAD":
            assert answer.json()["code"] == "TOKEN_FORBIDDEN"
            assert answer.json()["what"] == "the token `app` may only push events to `ods.events`"


def test_push_tokens_on_the_command_line_and_in_python(api: Api, cli: Callable[..., Any]) -> None:
    made = cli("token", "create", "app", "--scope", "push", "--source", "ods.a, ods.b", "--source", "ods.c", "--json")
    assert made["sources"] == ["ods.a", "ods.b", "ods.c"]
    assert "push to ods.a, ods.b, ods.c" in cli("token", "list")
    mistakes = {
        ("--scope", "push"): "a token of scope push needs a source",
        ("--source", "ods.a"): "sources belong to scope push, not to scope read",
        ("--scope", "push", "--source", "ods.a", "--branch", "main"): "a token of scope push can't be limited",
        ("--scope", "psh", "--source", "ods.a"): "'psh' is not a scope; close: `push`",
        ("--scope", "push", "--source", "events"): "'events' is not a table name",
    }
    for words, what in mistakes.items():
        assert what in cli("token", "create", "x", *words, "--json")["error"]["what"]
    with rn.open(api.url, token=api.secret) as lake:
        created = lake.create_token("phone", "push", sources=["ods.a"])
        assert created.token.sources == ("ods.a",)
        assert {token.id for token in lake.tokens()} == {token.id for token in api.lake.tokens()}
        assert created.token in lake.tokens()
        assert api.ask("GET", "/token", secret=created.secret).json()["token"] == "phone"
        assert lake.revoke_token("phone").revoked_at is not None
        with pytest.raises(Mistake, match="needs a source"):
            lake.create_token("other", "push")


def test_a_source_that_is_not_declared_is_warned_of(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = {"ods.events": SourceDeclaration("ods.events", "push", "ods.events", ("id",))}
    declarations.write_declarations(api.lake.store.db, ProjectDeclarations(sources=pushed))
    monkeypatch.chdir(api.lake.settings.root)
    monkeypatch.setattr(sys, "argv", ["runnel", "token", "create", "a", "--scope", "push", "--source", "ods.evnts"])
    main()
    warning = "warning: the project declares no source `ods.evnts` yet; close: `ods.events`"
    assert warning in capsys.readouterr().err


_made: dict[tuple[str, str], str] = {}


def _token(api: Api, name: str, tables: tuple[str, ...] | None, branch: str | None) -> str:
    """Return a limited token of the served shop, made once."""
    if (api.url, name) not in _made:
        _made[api.url, name] = tokens.create(api.lake.store.db, name, "read", tables=tables, branch=branch)
    return _made[api.url, name]
