"""Who may do what, and how errors are told."""

import subprocess
import sys

import pytest
import requests

from runnel.lake.control import tokens
from tests.service.api.api_server import Api


def test_nothing_but_health_is_open(seen: Api) -> None:
    assert requests.get(f"{seen.url}/health").json() == {"status": "up"}
    assert requests.get(f"{seen.url}/ready").json() == {"status": "ready"}
    paths = requests.get(f"{seen.url}/openapi.json", headers={"Authorization": f"Bearer {seen.secret}"}).json()["paths"]
    for path, methods in paths.items():
        for method in methods if path not in ("/health", "/ready") else ():
            found = requests.request(method, seen.url + path)
            assert (found.status_code, found.json()["code"]) == (401, "TOKEN_MISSING"), path
            assert found.headers["www-authenticate"].startswith("Bearer")
    for path in ("/openapi.json", "/nothing", "/docs", "/health/", "//health"):
        assert requests.get(seen.url + path, allow_redirects=False).status_code == 401, path


GIVEN = {
    "none": {},
    "another": {"Authorization": "Bearer rnl_wrong"},
    "empty": {"Authorization": "Bearer "},
    "another kind": {"Authorization": "Basic YTpi"},
    "no ASCII": {"Authorization": "Bearer \xfc\xff"},
    "long": {"Authorization": "Bearer " + "x" * 20_000},
}


@pytest.mark.parametrize("headers", GIVEN.values(), ids=GIVEN)
def test_a_wrong_token(seen: Api, headers: dict[str, str]) -> None:
    found = requests.get(f"{seen.url}/api/v1/tables", headers=headers)
    assert found.status_code == 401
    assert found.json()["fix"] and found.headers["www-authenticate"]


def test_a_revoked_token(api: Api) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "write")
    assert api.ask("GET", "/tables", secret=secret).status_code == 200
    tokens.revoke(api.lake.store.db, "bob")
    assert api.ask("GET", "/tables", secret=secret).json()["code"] == "TOKEN_INVALID"


def test_a_token_that_may_only_read(api: Api) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "read")
    assert api.ask("GET", "/tables", secret=secret).status_code == 200
    sql = {"sql": "select count(*) as n from ods.orders"}
    assert api.ask("POST", "/query", secret=secret, json=sql).json()["rows"] == [[3]]
    for method, path in (("POST", "/branches"), ("DELETE", "/branches/dev"), ("POST", "/runs"), ("POST", "/merge")):
        found = api.ask(method, path, secret=secret, json={})
        assert (found.status_code, found.json()["code"]) == (403, "TOKEN_FORBIDDEN")
    assert [one["branch"] for one in api.get("/branches")["items"]] == ["main", "dev"]


def test_what_is_done_is_ascribed_to_the_token(api: Api) -> None:
    secret = tokens.create(api.lake.store.db, "bob", "write")
    assert api.ask("POST", "/tags", secret=secret, json={"name": "v2"}).json()["author"] == "bob"
    assert api.ask("POST", "/merge", secret=secret, json={"branch": "dev"}).status_code == 200
    assert api.get("/commits")["items"][0]["author"] == "bob"
    assert api.ask("POST", "/runs", secret=secret).json()["author"] == "bob"


TOLD = {
    "unknown path": ("GET", "/nothing", {}, 404, "PATH_UNKNOWN", "/openapi.json"),
    "another method": ("PUT", "/tables", {}, 405, "METHOD_NOT_ALLOWED", "PUT is not possible"),
    "unknown table": ("GET", "/tables/ods.ordres", {}, 404, "TABLE_UNKNOWN", "close: `ods.orders`"),
    "no table name": ("GET", "/tables/Orders", {}, 422, "NAME_TABLE", "layer.name"),
    "unknown ref": ("GET", "/tables?at=dve", {}, 404, "REF_UNKNOWN", "close: `dev`"),
    "a NUL": ("GET", "/tables?at=a%00b", {}, 422, "REQUEST_INVALID", "query.at"),
    "a huge number": ("GET", f"/tables?limit={10**30}", {}, 422, "REQUEST_INVALID", "query.limit"),
    "no number": ("GET", "/commits?limit=many", {}, 422, "REQUEST_INVALID", "query.limit"),
    "no JSON": ("POST", "/branches", {"data": "{"}, 422, "REQUEST_INVALID", "body"),
    "no UTF-8": ("POST", "/branches", {"data": b'{"name": "\xff"}'}, 400, "REQUEST_INVALID", "body"),
    "a missing field": ("POST", "/branches", {"json": {}}, 422, "REQUEST_INVALID", "body.name"),
    "an unknown field": (
        "POST",
        "/branches",
        {"json": {"name": "x", "form": "y"}},
        422,
        "REQUEST_INVALID",
        "body.form",
    ),
    "half a character": ("POST", "/branches", {"json": {"name": "\ud800"}}, 422, "REQUEST_INVALID", "body.name"),
    "a reserved name": ("POST", "/branches", {"json": {"name": "run_1"}}, 422, "NAME_RESERVED", "run_1"),
    "too large": ("POST", "/query", {"data": b" " * (3 * 2**20)}, 413, "REQUEST_TOO_LARGE", "2 MiB"),
    "a key that is none": ("POST", "/runs", {"headers": {"Idempotency-Key": "a b"}}, 422, "REQUEST_INVALID", "header"),
}


@pytest.mark.parametrize(("method", "path", "options", "status", "code", "word"), TOLD.values(), ids=TOLD)
def test_errors(seen: Api, method: str, path: str, options: dict, status: int, code: str, word: str) -> None:
    headers = {"Content-Type": "application/json"} | options.pop("headers", {}) if method == "POST" else {}
    found = seen.ask(method, path, headers=headers, **options)
    assert (found.status_code, found.json()["code"]) == (status, code), found.text
    assert word in found.text


def test_a_defect_is_told_without_its_trace(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.lake.store.db, "read", None, raising=False)
    found = requests.get(f"{api.url}/api/v1/branches", headers={"Authorization": f"Bearer {api.secret}"})
    assert (found.status_code, found.json()["code"]) == (500, "INTERNAL")
    assert "Traceback" not in found.text and "NoneType" not in found.text


def test_a_database_that_is_away(api: Api) -> None:
    api.lake.store.db.engine.dispose()
    folder = api.lake.settings.home
    folder.rename(folder.with_name("away"))
    try:
        found = requests.get(f"{api.url}/ready")
        assert found.status_code in (422, 503) and found.json()["code"]
        assert requests.get(f"{api.url}/health").status_code == 200
    finally:
        folder.with_name("away").rename(folder)
    assert requests.get(f"{api.url}/ready").status_code == 200


def test_no_spark_is_imported() -> None:
    code = "import sys, runnel.service.api.app; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
