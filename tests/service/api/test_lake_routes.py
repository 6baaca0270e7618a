"""Tables, commits, branches, tags, diff and merge: what the command line says, over HTTP."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from runnel.cli.main import main
from tests.service.api.api_server import Api


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seen: Api) -> Callable[..., Any]:
    """Return a function that gives what a command prints as JSON."""
    monkeypatch.chdir(seen.lake.settings.root)

    def run(*words: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["runnel", *words, "--json"])
        capsys.readouterr()
        main()
        return json.loads(capsys.readouterr().out)

    return run


SAME: dict[str, tuple[str, Callable[[Any], Any], tuple[str, ...]]] = {
    "tables": ("/tables", lambda found: found["items"], ("tables",)),
    "a table": ("/tables/ods.orders?at=dev", lambda found: found, ("table", "ods.orders", "--at", "dev")),
    "why": ("/tables/ods.orders/why", lambda found: found, ("why", "ods.orders")),
    "log": ("/commits", lambda found: found["items"], ("log",)),
    "log of a table": ("/commits?table=raw.docs", lambda found: found["items"], ("log", "raw.docs")),
    "why of rows": (
        "/tables/ods.orders/why?row=id%20%3E%200",
        lambda found: found,
        ("why", "ods.orders", "--row", "id > 0"),
    ),
    "branches": ("/branches", lambda found: found["items"], ("branch",)),
    "tags": ("/tags", lambda found: found["items"], ("tag",)),
    "diff": ("/diff?a=main&b=dev", lambda found: found, ("diff", "main", "dev")),
    "diff of a table": ("/diff?a=v1&b=dev&table=ods.orders", lambda found: found, ("diff", "v1", "dev", "ods.orders")),
}


@pytest.mark.parametrize(("path", "part", "words"), SAME.values(), ids=SAME)
def test_the_same_as_the_command_line(
    seen: Api, cli: Callable[..., Any], path: str, part: Callable[[Any], Any], words: tuple[str, ...]
) -> None:
    assert part(seen.get(path)) == cli(*words)


@pytest.mark.parametrize("ref", ["main", "v1"])
def test_a_commit_and_its_files_are_what_show_prints(seen: Api, cli: Callable[..., Any], ref: str) -> None:
    commit, files = seen.get(f"/commits/{ref}"), seen.get(f"/commits/{ref}/files")
    assert {**commit, "files": files["items"]} == cli("show", ref)


def test_rows_page_by_page(seen: Api) -> None:
    first = seen.get("/tables/ods.orders/rows", limit=2)
    assert (first["columns"], first["next"], first["engine"]) == (["id", "day", "amount"], "2", "duckdb")
    rest = seen.get("/tables/ods.orders/rows", limit=2, offset=first["next"], at=first["at"])
    assert [row[0] for row in first["rows"] + rest["rows"]] == [1, 2, 3] and rest["next"] is None
    assert len(seen.get("/tables/ods.orders/rows", at="dev")["rows"]) == 4
    assert seen.get("/tables/ods.orders/rows", offset=2**31 - 1)["rows"] == []


def test_lists_page_by_page(seen: Api) -> None:
    whole = seen.get("/commits")["items"]
    found, before = [], {}
    while True:
        page = seen.get("/commits", limit=1, **before)
        found += page["items"]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert found == whole and len(found) > 2
    first = seen.get("/tables", limit=1)
    assert [one["table"] for one in first["items"]] == ["ods.orders"] and first["next"] == "ods.orders"
    assert [one["table"] for one in seen.get("/tables", after=first["next"])["items"]] == ["raw.docs"]


ASKED = ["/tables", "/tables/ods.orders", "/tables/ods.orders/rows", "/commits", "/commits/main", "/branches", "/tags"]


@pytest.mark.parametrize("path", [*ASKED, "/diff?a=main&b=dev"])
def test_who_has_the_newest_is_told_so(seen: Api, path: str) -> None:
    first = seen.ask("GET", path)
    known = first.headers["etag"]
    again = seen.ask("GET", path, headers={"If-None-Match": f'"other", {known}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", known)
    assert seen.ask("GET", path, headers={"If-None-Match": '"other"'}).content == first.content or "rows" in path
    other = seen.ask("GET", f"{path}{'&' if '?' in path else '?'}limit=7")
    if path in ("/tables", "/tables/ods.orders/rows", "/commits"):
        assert other.headers["etag"] != known
    else:
        assert (other.status_code, other.json()["code"]) == (422, "REQUEST_INVALID")
        assert "limit" in other.json()["what"] and "there is no such parameter" in other.json()["what"]


def test_a_misspelled_parameter_is_refused_with_the_nearest(seen: Api) -> None:
    refused = seen.ask("GET", "/tables?limt=7&branch=main")
    assert (refused.status_code, refused.json()["code"]) == (422, "REQUEST_INVALID")
    assert "there is no such parameter; close: `limit`" in refused.json()["what"]


def test_a_branch_and_a_tag(api: Api) -> None:
    made = api.post("/branches", {"name": "fix", "from": "v1"}, 201)
    assert made["from"] == made["head"] == api.get("/tags")["items"][0]["commit"]
    assert api.post("/branches", {"name": "fix"}, 422)["code"] == "BRANCH_EXISTS"
    known = api.ask("GET", "/branches").headers["etag"]
    assert api.ask("DELETE", "/branches/fix").json() == {"deleted": "fix"}
    assert api.ask("DELETE", "/branches/fix").json()["code"] == "BRANCH_UNKNOWN"
    assert api.ask("GET", "/branches", headers={"If-None-Match": known}).status_code == 200
    assert api.post("/tags", {"name": "v2", "ref": "dev"}, 201)["tag"] == "v2"
    assert api.post("/tags", {"name": "v2", "ref": "v1"}, 422)["code"] == "TAG_EXISTS"
    assert api.post("/tags", {"name": "v2", "ref": "v1", "force": True}, 201)["commit"] == made["head"]
    assert api.ask("DELETE", "/tags/v2").json() == {"deleted": "v2"}


def test_merge_and_revert(api: Api) -> None:
    known = api.ask("GET", "/tables").headers["etag"]
    done = api.post("/merge", {"branch": "dev"})
    assert done["commit"] == api.get("/commits")["items"][0]["commit"]
    assert [(step["table"], step["action"]) for step in done["steps"]] == [("ods.orders", "take")]
    assert api.ask("GET", "/tables", headers={"If-None-Match": known}).status_code == 200
    assert api.post("/merge", {"branch": "dev"})["commit"] is None
    undone = api.post(f"/commits/{done['commit']}/revert", {"message": "back"})
    assert (undone["reverted"], undone["branch"]) == (done["commit"], "main")
    assert api.get(f"/commits/{undone['commit']}")["message"] == "back"
    assert len(api.get("/tables/ods.orders/rows")["rows"]) == 3
    assert api.post(f"/commits/{done['commit']}/revert", expected=422)["code"] == "REVERT_NOTHING"


def test_a_merge_that_can_not_be(api: Api) -> None:
    root = api.lake.settings.root
    (root / "other.csv").write_text("id,day,amount,extra\n9,2026-01-09,1.00,x\n")
    api.lake.load("ods.orders", root / "other.csv", replace=True)
    api.lake.load("ods.orders", root / "other.csv", branch="dev", replace=True)
    found = api.post("/merge", {"branch": "dev"}, 409)
    assert found["code"] == "MERGE_CONFLICT"
    assert [(one["table"], one["action"]) for one in found["tables"]] == [("ods.orders", "conflict")]


ANSWERED = {
    "a SELECT": ({"sql": "select day, count(*) as n from ods.orders group by day order by day"}, [["2026-01-01", 2]]),
    "at a branch": ({"sql": "select count(*) as n from ods.orders", "at": "dev"}, [[4]]),
    "no more than asked for": ({"sql": "select id from ods.orders order by id", "limit": 1}, [[1]]),
    "what JSON has no word for": (
        {"sql": "select cast(1.5 as decimal(4,2)) as x, date '2026-01-02' as y"},
        [["1.50", "2026-01-02"]],
    ),
}


@pytest.mark.parametrize(("body", "rows"), ANSWERED.values(), ids=ANSWERED)
def test_queries(seen: Api, body: dict[str, Any], rows: list[list[Any]]) -> None:
    found = seen.post("/query", body)
    assert found["rows"][: len(rows)] == rows and found["engine"] == "duckdb"
    assert found["more"] == ("limit" in body)


REFUSED = {
    "only for Spark, and no worker": ("select initcap(day) from ods.orders", 503, "WORKER_ABSENT"),
    "no SELECT": ("drop table ods.orders", 422, "SQL_NOT_READ_ONLY"),
    "no SQL": ("selec 1", 422, "SQL_"),
    "an unknown table": ("select * from ods.ordres", 404, "TABLE_UNKNOWN"),
    "a file": ("select * from read_csv('/etc/passwd')", 422, "SQL_FUNCTION"),
}


@pytest.mark.parametrize(("sql", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_refused_queries(seen: Api, sql: str, status: int, code: str) -> None:
    assert seen.post("/query", {"sql": sql}, status)["code"].startswith(code)
