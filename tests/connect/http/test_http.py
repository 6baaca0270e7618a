"""REST APIs as sources: every record once, what is new since the last time, and nothing where nothing is new."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.feed import failpoints
from runnel.lake import failpoints as of_lake
from tests.run.project import Project, did
from tests.servers.http_server import Server, write_netrc

SCHEMA = "id long, at timestamp, amount decimal(22,2)"


def order(number: int, second: int | None = None, amount: str = "1.50") -> dict[str, Any]:
    return {"id": number, "at": f"2026-01-01T00:00:{second or number:02}Z", "amount": amount}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.records = [order(1), order(2), order(3)]
        yield server


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def declare(project: Project, url: str, api: str = "", source: str = "", name: str = "orders") -> None:
    text = f'rn.source("ods.{name}", rn.http("{url}", schema="{SCHEMA}"{api}){source})\n'
    project.flow(text, f"{name}.py", orders=None)


def ids(project: Project, table: str = "ods.orders") -> list[int]:
    return sorted(row[0] for row in project.rows(table))


def amounts(project: Project) -> dict[int, str]:
    return {row[0]: str(row[2]) for row in project.rows("ods.orders")}


def test_an_answer_is_all_there_is(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"))
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3]
    assert did(shop.run()) == {}
    server.records.reverse()
    assert did(shop.run()) == {}, "the same records in another order are the same"
    server.records = [order(2), order(4)]
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [2, 4]


def test_what_is_known_to_be_valid_is_not_read_again(shop: Project, server: Server) -> None:
    server.has_etags = True
    declare(shop, server.url("/all"))
    shop.run()
    commits = shop.commits()
    assert did(shop.run()) == {} and shop.commits() == commits
    assert [one.status for one in server.requests] == [200, 304]
    plan = shop.plan()
    assert plan.steps == () or plan.steps[0].action == "skip"
    server.records.append(order(4))
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3, 4]


def test_the_tag_of_a_first_page_says_nothing_of_the_others(shop: Project, server: Server) -> None:
    server.has_etags = True
    declare(shop, server.url("/page"), ', records="data.items", paging="page"')
    shop.run()
    server.records.append(order(4))
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_exclusive", [False, True], ids=["at or after", "after"])
def test_only_what_is_new_is_asked_for(shop: Project, server: Server, is_exclusive: bool) -> None:
    server.is_exclusive = is_exclusive
    declare(shop, server.url("/cursor"), ', records="items", paging="cursor", cursor="meta.next_cursor", since="at"')
    shop.run()
    assert did(shop.run()) == {}
    server.records += [order(4), order(5), order(6)]
    assert shop.plan().steps[0].reason.endswith("for what is new since 2026-01-01T00:00:03Z")
    before = len(server.requests)
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert {one.query["since"] for one in server.requests[before:]} == {"2026-01-01T00:00:03Z"}
    assert did(shop.run()) == {}
    assert ids(shop) == [1, 2, 3, 4, 5, 6]


def test_a_new_record_of_the_last_moment_is_not_missed(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ', since="at"')
    shop.run()
    server.records.append(order(4, second=3))
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3, 4]


def test_an_api_that_ignores_since_gives_no_row_twice(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ', since={"changed": "at"}')
    shop.run()
    server.records.append(order(4))
    shop.run()
    assert ids(shop) == [1, 2, 3, 4]


def test_of_records_with_one_key_the_newest_counts(shop: Project, server: Server) -> None:
    server.records = [order(1, second=9, amount="9.99"), order(2), order(1), order(2, amount="2.50")]
    declare(shop, server.url("/all"), ', since="at", key="id"')
    shop.run()
    assert amounts(shop) == {1: "9.99", 2: "2.50"}


def test_by_key_without_since_rows_that_are_gone_stay(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), source=', key="id"')
    shop.run()
    server.records = [order(3, amount="3.33"), order(4)]
    assert did(shop.run()) == {"ods.orders": "ingest"}
    commits = shop.commits()
    assert did(shop.run()) == {} and shop.commits() == commits
    assert amounts(shop) == {1: "1.50", 2: "1.50", 3: "3.33", 4: "1.50"}


def test_each_answer_can_be_appended(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ", append=True")
    shop.run()
    server.records = [order(3)]
    shop.run()
    assert did(shop.run()) == {}
    assert ids(shop) == [1, 2, 3, 3]


def test_numbers_keep_all_their_digits(shop: Project, server: Server) -> None:
    server.fail("body", b'[{"id": 1, "amount": 0.1}, {"id": 9007199254740993, "amount": 12345678901234567890.12}]')
    declare(shop, server.url("/all"))
    shop.run()
    assert amounts(shop) == {1: "0.10", 9007199254740993: "12345678901234567890.12"}


def test_a_page_that_fails_for_good_publishes_nothing(shop: Project, server: Server) -> None:
    declare(shop, server.url("/page"), ', records="data.items", paging="page", since="at"')
    shop.run()
    server.records += [order(4), order(5), order(6)]
    server.fail("status", 400, skip=1)
    ran = shop.run()
    assert "HTTP_REFUSED" in str(ran.errors[0]) and ids(shop) == [1, 2, 3]
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3, 4, 5, 6]


def test_a_bad_record_publishes_nothing_and_is_asked_for_again(shop: Project, server: Server) -> None:
    server.records[1]["amount"] = "much"
    declare(shop, server.url("/all"), ', since="at"')
    error = str(shop.run().errors[0])
    assert "much" in error and "not a decimal" in error and f"{server.host}/all page 1" in error
    server.records[1]["amount"] = "2.50"
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1, 2, 3]


def test_bad_records_go_to_quarantine(shop: Project, server: Server) -> None:
    server.fail("body", b'{"id": 1}\n{"id": 2, "amount": \n{"id": "x"}\nnull\n', headers={"Content-Type": "x-ndjson"})
    declare(shop, server.url("/all"), source=', on_bad="quarantine"')
    assert did(shop.run()) == {"ods.orders": "ingest"}
    assert ids(shop) == [1]
    aside = shop.rows("quarantine.ods_orders")
    assert sorted(row[0] for row in aside) == ["null", '{"id": "x"}', '{"id": 2, "amount":']
    assert {row[2] for row in aside} == {f"{server.host}/all page 1"}


def test_a_new_field_is_a_new_column(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ', since="at"')
    shop.run()
    server.records.append({**order(4), "note": {"by": "ada"}})
    ran = shop.run()
    assert "note" in str(ran.steps[0].warnings)
    assert [row[3] for row in shop.rows("ods.orders") if row[0] == 4] == [{"by": "ada"}]


def test_secrets_are_nowhere(shop: Project, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "tok-4711-tok")
    monkeypatch.setenv("API_KEY", "key/08 15&key")
    secrets = ', token=rn.secret("API_TOKEN"), params={"api_key": rn.secret("API_KEY")}, paging="link"'
    server.token = "tok-4711-tok"
    declare(shop, server.url("/link"), secrets, ', on_bad="quarantine"')
    server.records.append({"id": "x"})
    ran = shop.run()
    assert did(ran) == {"ods.orders": "ingest"} and ids(shop) == [1, 2, 3]
    assert [one.query["api_key"] for one in server.requests] == ["key/08 15&key"] * 2
    server.token = "another"
    denied = shop.run().errors[0]
    assert "HTTP_DENIED" in str(denied) and "`API_TOKEN`" in str(denied) and "secret(API_TOKEN)" in str(denied)
    server.token = None
    server.fail("status", 400)
    told = json.dumps([denied.to_json(), shop.run().errors[0].to_json()]) + repr(shop.plan())
    for path in shop.root.rglob("*"):
        told += path.read_bytes().decode(errors="replace") if path.is_file() else ""
    for secret in ("4711", "08 15", "08+15", "08%2015"):
        assert secret not in told


def test_the_declared_token_is_sent_though_netrc_knows_the_host(
    shop: Project, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_netrc(tmp_path, monkeypatch)
    monkeypatch.setenv("API_TOKEN", "tok")
    declare(shop, server.url("/all"), ', headers={"Authorization": rn.secret("API_TOKEN")}')
    shop.run()
    declare(shop, server.url("/page"), "")
    shop.run()
    assert {request.headers.get("Authorization") for request in server.asked("/all")} == {"tok"}
    assert {request.headers.get("Authorization") for request in server.asked("/page")} == {None}


def test_a_secret_that_is_not_set_is_named(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ', token=rn.secret("NO_SUCH_TOKEN")')
    with pytest.raises(Exception, match="NO_SUCH_TOKEN, which is not set") as told:
        if errors := shop.run().errors:
            raise errors[0]
    assert "orders.py:" in str(told.value) and not server.requests


def run_once(root: str) -> None:
    assert not Project(Path(root)).run().errors


POINTS = (
    *failpoints.ALL,
    of_lake.PUBLISH_BEFORE,
    of_lake.PUBLISH_BEFORE_COMMIT,
    of_lake.PUBLISH_AFTER_COMMIT,
)
