"""The pages of APIs, and where records stand in them."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest

from runnel.connect.http import jsonl_writer
from runnel.declare.model.secret import Secret
from runnel.errors import Mistake
from tests.connect.http.http_feed import Poll
from tests.servers.http_server import Server


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.__dict__.update(records=[{"id": number} for number in range(1, 6)], requests=[], size=2, is_endless=False)
    running.__dict__.update(is_packed=False, content_type="application/json", token=None, basic=None)
    running.heal()
    return running


STYLES: dict[str, tuple[str, dict[str, Any], int]] = {
    "one answer": ("/all", {}, 1),
    "NDJSON": ("/lines", {}, 1),
    "pages until one is empty": ("/page", {"records": "data.items", "paging": "page", "param": "page"}, 4),
    "pages until it says so": (
        "/page",
        {"records": "data.items", "paging": "page", "param": "page", "more": "more"},
        3,
    ),
    "larger pages": (
        "/page",
        {"records": "data.items", "paging": "page", "param": "page", "size": ("per_page", 3)},
        3,
    ),
    "offsets": ("/offset", {"records": "items", "paging": "offset", "param": "offset"}, 4),
    "offsets by what came": (
        "/offset?limit=2",
        {"records": "items", "paging": "offset", "param": "offset", "size": ("size", 100)},
        4,
    ),
    "cursors": (
        "/cursor",
        {"records": "items", "paging": "cursor", "param": "cursor", "cursor": "meta.next_cursor"},
        3,
    ),
    "the header Link": ("/link", {"paging": "link"}, 3),
    "a link in the answer": ("/next", {"records": "results", "paging": "link", "next": "next"}, 3),
    "a POST": (
        "/cursor",
        {
            "records": "items",
            "paging": "cursor",
            "param": "cursor",
            "cursor": "meta.next_cursor",
            "method": "POST",
            "size": ("limit", 3),
            "json": (("status", '["open"]'),),
        },
        2,
    ),
}


@pytest.mark.parametrize(("path", "options", "requests"), STYLES.values(), ids=STYLES)
def test_every_style_of_paging(path: str, options: dict[str, Any], requests: int, server: Server) -> None:
    poll = Poll(server.url(path), **options)
    assert poll.ids() == [1, 2, 3, 4, 5]
    assert len(server.requests) == requests
    assert poll.told[-1].startswith("page ")


@pytest.mark.parametrize(("path", "options", "requests"), STYLES.values(), ids=STYLES)
def test_no_records_are_none(path: str, options: dict[str, Any], requests: int, server: Server) -> None:
    server.records = []
    assert Poll(server.url(path), **options).fetched()[1].parts == ()
    assert len(server.requests) == 1


def test_a_post_sends_its_parameters_as_json(server: Server) -> None:
    Poll(server.url("/cursor"), **STYLES["a POST"][1]).ids()
    assert [one.json for one in server.requests] == [
        {"status": ["open"], "limit": 3},
        {"status": ["open"], "limit": 3, "cursor": "c3"},
    ]


def test_after_the_last_page_an_api_may_have_none(server: Server) -> None:
    server.fail("status", 404, skip=3)
    assert Poll(server.url("/page"), **STYLES["pages until one is empty"][1]).ids() == [1, 2, 3, 4, 5]


def test_a_missing_first_page_is_a_mistake(server: Server) -> None:
    server.fail("status", 404)
    error = Poll(server.url("/page?day=1"), **STYLES["pages until one is empty"][1]).error()
    assert isinstance(error, Mistake) and error.what == f"there is nothing at {server.host}/page (status 404)"


def test_records_are_written_in_files_of_bounded_size(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_writer, "PART_BYTES", 30)
    found = Poll(server.url("/cursor"), **STYLES["cursors"][1]).fetched()[1]
    assert [part.name.removeprefix(f"{server.host}/cursor ") for part in found.parts] == ["page 1 to 2", "page 2 to 3"]


ENDLESS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a cursor that comes again": ("/cursor", STYLES["cursors"][1], "repeats pages"),
    "a page that is not asked for": (
        "/page",
        {"records": "data.items", "paging": "page", "param": "p"},
        "has the same records on page 2 as on the page before",
    ),
    "too many": ("/link", {"paging": "link", "most_pages": 2}, "has more than 2 pages"),
}


@pytest.mark.parametrize(("path", "options", "told"), ENDLESS.values(), ids=ENDLESS)
def test_a_walk_ends(path: str, options: dict[str, Any], told: str, server: Server) -> None:
    server.is_endless = True
    error = Poll(server.url(path), **options).error()
    assert error.code == "HTTP_ENDLESS" and told in error.what and len(server.requests) <= 4


WRONG: dict[str, tuple[bytes, dict[str, Any], str, str]] = {
    "no such path": (
        b'{"data": {"itens": []}, "n": 1}',
        {"records": "data.items"},
        "close: `data.itens`",
        "data.itens",
    ),
    "keys are told": (b'{"a": 1, "b": 2}', {"records": "x"}, "its keys: `a` and `b`", "look at its answer"),
    "an object": (b'{"data": {"rows": [1]}}', {}, "is an object, not a list of records", 'records="data.rows"'),
    "an object of objects": (b'{"7": {"id": 7}, "8": {}}', {}, "it has objects at `7` and `8`", "@rn.source"),
    "a number": (b"5", {}, "is a number", "@rn.source"),
    "a list of lists": (b'[["a", 1]]', {}, "its values have no names", "@rn.source"),
    "the list itself": (b"[]", {"records": "data"}, "it is a list", "leave `records` out"),
    "lines": (b'{"id": 1}\n{"id": 2}\n', {"records": "data"}, "answers NDJSON", "leave `records` out"),
    "no JSON": (b"<html>Sorry</html>", {}, "it starts with '<html>Sorry</html>'", "ask for JSON"),
    "no lines": (b"a\nb\n", {}, "application/json that is not JSON", "ask for JSON"),
    "nothing": (b"", {}, "it is empty", "ask for JSON"),
    "no end": (b'[{"id": 1}', {}, "that is not JSON (expecting", "ask for JSON"),
    "too deep": (b"[" * 200_000, {}, "that is not JSON", "ask for JSON"),
    "no UTF-8": (b'[{"name": "M\xfcller"}]', {}, "byte 0xfc at position 12 is not utf-8", "must send"),
    "a cursor elsewhere": (
        b'{"items": [{"id": 1}], "meta": {"next_curser": "x"}}',
        {"records": "items", "paging": "cursor", "param": "cursor", "cursor": "meta.next_cursor"},
        "close: `meta.next_curser`",
        "cursor=...",
    ),
    "no cursor on a full page": (
        b'{"items": [{"id": 1}]}',
        {"records": "items", "paging": "cursor", "param": "c", "cursor": "x", "size": ("limit", 1)},
        "has no `x`",
        "cursor=...",
    ),
    "no link": (b'{"r": [], "n": 5}', {"records": "r", "paging": "link", "next": "n"}, "`n` in an", "cursor"),
}


@pytest.mark.parametrize(("body", "options", "told", "fix"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_an_answer_is_told(
    body: bytes, options: dict[str, Any], told: str, fix: str, server: Server
) -> None:
    server.fail("body", body)
    error = Poll(server.url("/all"), **options).error()
    assert told in error.what and fix in (error.fix or "")


READ: dict[str, tuple[bytes, str]] = {
    "of another encoding": ('[{"id": 1, "name": "Müller"}]'.encode("latin-1"), "application/json; charset=iso-8859-1"),
    "of UTF-16": ('[{"id": 1, "name": "Müller"}]'.encode("utf-16"), "application/json"),
    "with a byte order mark": ('\ufeff[{"id": 1, "name": "Müller"}]'.encode(), "application/json; charset=utf-8"),
    "of no type": ('[{"id": 1, "name": "Müller"}]'.encode(), ""),
    "a packed file": (gzip.compress('[{"id": 1, "name": "Müller"}]'.encode()), "application/gzip"),
    "lines": ('{"id": 1, "name": "Müller"}\n\n'.encode(), "application/x-ndjson"),
}


@pytest.mark.parametrize(("body", "kind"), READ.values(), ids=READ)
def test_answers_are_read(body: bytes, kind: str, server: Server) -> None:
    server.fail("body", body, headers={"Content-Type": kind})
    assert Poll(server.url("/all")).fetched()[0] == [{"id": 1, "name": "Müller"}]


def test_an_answer_without_content_has_no_records(server: Server) -> None:
    server.fail("status", 204)
    assert Poll(server.url("/all")).fetched()[1].parts == ()


def test_what_nobody_asked_is_not_taken_for_no_records(server: Server) -> None:
    server.fail("status", 304)
    assert "(status 304)" in Poll(server.url("/all")).error().what


def test_packed_answers_are_read(server: Server) -> None:
    server.is_packed = True
    assert Poll(server.url("/all")).ids() == [1, 2, 3, 4, 5]


def test_user_and_password(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.basic = ("ada", "pass:word")
    monkeypatch.setenv("API_PASSWORD", "pass:word")
    assert Poll(server.url("/all"), user="ada", password=Secret("API_PASSWORD")).ids() == [1, 2, 3, 4, 5]


SINCE: dict[str, tuple[list[Any], Any]] = {
    "numbers": ([9, 10, 2], 10),
    "numbers as texts": (["9", "10"], "10"),
    "moments": (["2026-01-01T00:00:00.5Z", "2026-01-01T01:00:00+01:00"], "2026-01-01T00:00:00.5Z"),
    "days": (["2026-01-09", "2026-01-10"], "2026-01-10"),
    "texts": (["b", "a"], "b"),
}


@pytest.mark.parametrize(("values", "greatest"), SINCE.values(), ids=SINCE)
def test_the_greatest_value(values: list[Any], greatest: Any, server: Server) -> None:
    server.records = [{"id": number, "at": value} for number, value in enumerate(values)]
    state = Poll(server.url("/all"), since=("changed", "at")).fetched()[1].state
    assert state["since"] == greatest
    assert Poll(server.url("/all"), since=("changed", "at")).fetched(state)[1].parts == ()
    assert server.requests[-1].query == {"changed": str(greatest)}


NO_ORDER: dict[str, tuple[list[Any], str]] = {
    "no value": ([{"id": 1, "at": 1}, {"id": 2}], "a record has no `at`"),
    "a typo": ([{"id": 1, "updated_a": 1}], "a record has no `at`"),
    "mixed": ([{"at": 1}, {"at": "soon"}], "is '1' in one record and 'soon' in another"),
}


@pytest.mark.parametrize(("records", "told"), NO_ORDER.values(), ids=NO_ORDER)
def test_what_has_no_order_is_told(records: list[Any], told: str, server: Server) -> None:
    server.records = records
    assert told in Poll(server.url("/all"), since=("changed", "at")).error().what


def test_another_field_is_another_position(server: Server) -> None:
    server.records = [{"id": 1, "at": 1}]
    state = Poll(server.url("/all"), since=("changed", "at")).fetched()[1].state
    with pytest.raises(Mistake, match="were not read by `id`"):
        Poll(server.url("/all"), since=("after", "id")).news(state)
    assert Poll(server.url("/all"), since=("after", "id"), key=("id",)).ids(state) == [1]
