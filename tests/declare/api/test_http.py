"""What is wrong with `rn.http(...)` is told, with the fix, and without what nobody should see."""

from typing import Any

import pytest

import runnel as rn
from runnel.declare.model.endpoints import Http
from runnel.errors import Mistake

URL = "https://api.example.com/orders"

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no address of HTTP": ({"url": "ftp://example.com/x"}, "not an HTTP address", "https://"),
    "a host is missing": ({"url": "https:///orders"}, "not an HTTP address", "https://"),
    "a port that is none": ({"url": "https://example.com:http/"}, "not an HTTP address", "https://"),
    "a password in the address": ({"url": "https://ada:4711@example.com/x"}, "a user or a password", "rn.secret"),
    "a key in the address": ({"url": f"{URL}?api_key=4711"}, "`api_key` in it, which is a secret", "params="),
    "an open token": ({"token": "4711"}, "`token` must be a secret", 'rn.secret("API_TOKEN")'),
    "an open password": ({"user": "ada", "password": "4711"}, "`password` must be a secret", "rn.secret"),
    "a user alone": ({"user": "ada"}, "go together", "password="),
    "two ways to sign in": (
        {"user": "ada", "password": rn.secret("A"), "token": rn.secret("B")},
        "two ways to sign in",
        "leave one",
    ),
    "an open header": ({"headers": {"X-Api-Key": "4711"}}, "`X-Api-Key` in `headers` is a secret", "rn.secret"),
    "an open parameter": ({"params": {"access_token": "4711"}}, "`access_token` in `params` is a secret", "rn.secret"),
    "a parameter of no kind": ({"params": {"a": [4711]}}, "is not a text, number or secret", "params="),
    "parameters that are none": ({"params": ["4711"]}, "must be a mapping", "params="),
    "an option that there is not": ({"record": "x"}, "no option `record`; close: `records`", "known: schema"),
    "a style that there is not": ({"paging": "pages"}, "close: `page`", "use one of"),
    "a cursor is missing": ({"paging": "cursor"}, "needs `cursor`", "meta.next_cursor"),
    "a cursor for pages": (
        {"paging": "page", "cursor": "x"},
        "`cursor` applies only to paging by cursor",
        "leave `cursor`",
    ),
    "a link for nothing": ({"next": "x"}, "`next` applies only to paging by link", 'paging="link"'),
    "a parameter for nothing": ({"param": "x"}, "`param` applies only to paging", "leave it out"),
    "a path of nothing": ({"records": "data..items"}, "`records` can't be", "data.items"),
    "a size of none": ({"size": {"per_page": 0}}, "`size` can't be", "per_page"),
    "two sizes": ({"size": {"a": 1, "b": 2}}, "`size` can't be", "per_page"),
    "since what": ({"since": 5}, "`since` can't be", "updated_since"),
    "a key that is no column": ({"key": "idd"}, "not in its schema; close: `id`", "its columns: id"),
    "a key, and append": ({"key": "id", "append": True}, "replace earlier ones", "leave"),
    "a body of GET": ({"method": "GET", "json": {}}, "a GET has no body", "POST"),
    "a body that is no JSON": ({"json": {"a": object()}}, "`a` in `json` is not JSON", "use texts"),
    "a rate of none": ({"rate": "often"}, "`rate` can't be 'often'", "10 per second"),
    "a timeout of none": ({"timeout": "soon"}, "`timeout` must be a duration", "30 days"),
    "a schema of none": ({"schema": "id lang"}, "where a type was expected", ""),
}


@pytest.mark.parametrize(("options", "told", "fix"), WRONG.values(), ids=WRONG)
def test_mistakes(options: dict[str, Any], told: str, fix: str) -> None:
    with pytest.raises(Mistake) as found:
        rn.http(**{"url": URL, "schema": "id long", **options})
    assert told in found.value.what and fix in str(found.value.fix) and "4711" not in str(found.value)


def made(**options: Any) -> Http:
    found = rn.http(URL, schema="id long, at timestamp", **options)
    assert isinstance(found, Http)
    return found


def test_short_forms() -> None:
    assert made(size=100).size == ("limit", 100) and made(size={"per_page": 5}).size == ("per_page", 5)
    assert made(since="at").since == ("since", "at") and made(since={"after": "id"}).since == ("after", "id")
    assert made(json={"a": [1], "b": rn.secret("B")}).json == (("a", "[1]"), ("b", rn.secret("B")))
    assert made(json={}).method == "POST" and made().method == "GET"
    assert made(params={"a": 1, "b": True}).params == (("a", "1"), ("b", "true"))
    assert [made(rate=rate).rate for rate in (5, "10 per second", "90 per minute", "36/hour")] == [5, 10, 1.5, 0.01]
    assert made(timeout="2 minutes").timeout_seconds == 120 and made(paging="offset").param == "offset"


def test_a_source_has_a_schema() -> None:
    with pytest.raises(Mistake, match="has no schema"):
        rn.source("ods.http_untyped", rn.http(URL))


def test_nothing_secret_is_in_what_it_is_called() -> None:
    found = made(token=rn.secret("API_TOKEN"), headers={"X-Api-Key": rn.secret("API_KEY")})
    assert "secret(API_TOKEN)" in repr(found) and "secret(API_KEY)" in repr(found)
