"""APIs that fail: what may pass is tried again, what can't is told, and secrets stay with the host they are for."""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.declare.model.secret import Secret
from runnel.errors import Mistake, Unreachable
from tests.connect.http.http_feed import Poll
from tests.servers.http_server import Server, certificate, unused_port


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.records = [{"id": 1}, {"id": 2}, {"id": 3}]
        yield server


PASSING = {
    "hung up on": ("drop", None),
    "cut off": ("cut", None),
    "no HTTP": ("garbage", None),
    "failed": ("status", 500),
    "a gateway without an answer": ("status", 504),
    "too busy": ("status", 429),
}


@pytest.mark.parametrize(("kind", "value"), PASSING.values(), ids=PASSING)
def test_what_may_pass_is_tried_again(kind: str, value: object, server: Server) -> None:
    server.fail(kind, value, times=2, skip=1)
    poll = Poll(server.url("/link"), paging="link")
    assert poll.ids() == [1, 2, 3]
    assert poll.pauses == [0.5, 1.0] and len(server.requests) == 4


LASTING = {
    "hung up on": ("drop", None, "it closed the connection"),
    "cut off": ("cut", None, "its answer is incomplete"),
    "no HTTP": ("garbage", None, "its answer is not HTTP"),
    "failed": ("status", 503, "failed (status 503): "),
    "too busy": ("status", 429, "is too busy (status 429)"),
}


@pytest.mark.parametrize(("kind", "value", "told"), LASTING.values(), ids=LASTING)
def test_what_does_not_pass_is_unreachable(kind: str, value: object, told: str, server: Server) -> None:
    server.fail(kind, value, times=99)
    poll = Poll(server.url("/all"), retries=3)
    error = poll.error()
    assert isinstance(error, Unreachable) and told in error.what and f"{server.host}/all" in error.what
    assert poll.pauses == [0.5, 1.0, 1.0, 1.0] and len(server.requests) == 4


def test_nothing_comes(server: Server) -> None:
    server.fail("slow", times=2)
    error = Poll(server.url("/all"), retries=1, timeout_seconds=0.1).error()
    assert isinstance(error, Unreachable) and "nothing arrived for 0.1 s" in error.what
    assert len(server.requests) == 2


def test_nobody_is_there() -> None:
    error = Poll(f"http://127.0.0.1:{unused_port()}/all?key=4711", retries=1).error()
    assert isinstance(error, Unreachable) and "it refuses the connection" in error.what and "4711" not in str(error)


def test_a_name_that_none_can_have() -> None:
    poll = Poll("http://.example.com/all")
    assert isinstance(poll.error(), Mistake) and "is not an HTTP address" in poll.error().what and not poll.pauses


def test_nobody_knows_the_name() -> None:
    error = Poll("http://no-such-host.invalid/all", retries=0).error()
    assert isinstance(error, Unreachable) and "its host name is unknown" in error.what


WAITS = {
    "seconds": ({"Retry-After": "7"}, 7.0),
    "a date": ({"Retry-After": "Mon, 16 Nov 2026 05:00:30 GMT", "Date": "Mon, 16 Nov 2026 05:00:00 GMT"}, 30.0),
    "a date that has passed": ({"Retry-After": "Mon, 16 Nov 2020 05:00:30 GMT"}, 0.0),
    "nothing": ({}, 0.5),
    "nonsense": ({"Retry-After": "soon"}, 0.5),
}


@pytest.mark.parametrize(("headers", "seconds"), WAITS.values(), ids=WAITS)
def test_an_api_says_how_long_to_wait(headers: dict[str, str], seconds: float, server: Server) -> None:
    server.fail("status", 429, headers=headers)
    poll = Poll(server.url("/all"))
    assert poll.ids() == [1, 2, 3] and sum(poll.pauses) == pytest.approx(seconds)


def test_nobody_waits_for_an_hour(server: Server) -> None:
    server.fail("status", 503, headers={"Retry-After": "3600"})
    poll = Poll(server.url("/all"))
    for _ in range(2):
        error = poll.error()
        assert isinstance(error, Unreachable) and "asks to wait 3,600 s" in error.what and not poll.pauses
    assert len(server.requests) == 1


def test_whoever_cancels_need_not_wait(server: Server) -> None:
    server.fail("status", 429, headers={"Retry-After": "60"})
    poll = Poll(server.url("/all"))

    class Stopped(list[str]):
        def append(self, what: str) -> None:
            raise KeyboardInterrupt

    poll.told = Stopped()
    with pytest.raises(KeyboardInterrupt):
        poll.fetched()
    assert not poll.pauses


def test_the_rate_is_kept(server: Server) -> None:
    server.records = [{"id": number} for number in range(10)]
    poll = Poll(server.url("/link"), pause=time.sleep, paging="link", rate=20.0)
    assert len(poll.ids()) == 10
    times = [one.at for one in server.requests]
    assert len(times) == 5 and times[-1] - times[0] >= 4 / 20 - 0.01


def test_who_asks_too_often_waits_as_told(server: Server) -> None:
    server.allowed = (1, 1.0)
    poll = Poll(server.url("/link"), pause=lambda _: server.requests.clear(), paging="link")
    assert poll.ids() == [1, 2, 3] and [one.status for one in server.requests] == [200]


def test_who_is_refused_is_told_which_secret_to_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "tok-4711")
    server.token = "another"
    error = Poll(server.url("/all"), token=Secret("API_TOKEN")).error()
    assert error.exit_code == 1 and "denies access (status 401)" in error.what and "export API_TOKEN=" in str(error.fix)
    assert "secret(API_TOKEN)" in error.what and "4711" not in str(error)  # the API sends it back
    assert "rn.secret(" in str(Poll(server.url("/all")).error().fix)


def test_a_secret_that_no_header_can_have(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "tok\n4711")
    error = Poll(server.url("/all"), token=Secret("API_TOKEN")).error()
    assert "a character that headers can't have" in error.what and "4711" not in str(error)


def test_another_host_gets_no_secret(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "tok-4711")
    monkeypatch.setenv("API_KEY", "key-0815")
    options = {"token": Secret("API_TOKEN"), "headers": (("X-Api-Key", Secret("API_KEY")), ("X-Shop", "a"))}
    with Server() as other:
        other.records = [{"id": 9}]
        for found in (f"/moved?to={other.url('/all')}", f"/moved?to={server.url('/all')}"):
            Poll(server.url(found), **options).ids()
        there, here = other.requests[0].headers, server.requests[-1].headers
        assert there["X-Shop"] == "a" and "4711" not in str(there) and "0815" not in str(there)
        assert here["Authorization"] == "Bearer tok-4711" and here["X-Api-Key"] == "key-0815"
        other.token = "x"
        assert "no secrets are sent there" in str(Poll(server.url(f"/moved?to={other.url('/all')}"), **options).error())


def test_redirects_that_lead_nowhere(server: Server) -> None:
    server.fail("status", 302, times=20, headers={"Location": "/all"})
    assert "more than 10 times" in Poll(server.url("/all")).error().what
    server.heal()
    error = Poll(server.url("/moved?to=ftp://example.com/")).error()
    assert isinstance(error, Mistake) and "without saying where to" in error.what
    server.fail("status", 302, headers={"Location": "/all"})
    assert "in a way that a POST can't follow" in Poll(server.url("/all"), method="POST").error().what


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_https_never_becomes_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = certificate(tmp_path)
    with Server(trusted) as server, Server() as opened:
        server.records = opened.records = [{"id": 1}]
        assert "is not trusted: " in Poll(server.url("/all"), retries=0).error().what
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
        assert Poll(server.url("/all")).ids() == [1]
        assert Poll(opened.url(f"/moved?to={server.url('/all')}")).ids() == [1]
        count = len(opened.requests)
        assert "to an address without encryption" in Poll(server.url(f"/moved?to={opened.url('/all')}")).error().what
        server.fail("body", b"[]", headers={"Link": f'<{opened.url("/all")}>; rel="next"'})
        assert "for its next page" in Poll(server.url("/all"), paging="link").error().what
        assert len(opened.requests) == count


def test_no_log_shows_a_secret(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("API_KEY", "key-0815")
    caplog.set_level(logging.DEBUG)
    Poll(server.url("/all"), params=(("api_key", Secret("API_KEY")),)).ids()
    assert server.requests[0].query == {"api_key": "key-0815"} and "0815" not in caplog.text


NO_LINKS = {
    "another kind": "javascript:alert(1)",
    "no host": "http://",
    "nonsense": "http://[::1",
    "no port": "http://a:99999/",
}


@pytest.mark.parametrize("link", NO_LINKS.values(), ids=NO_LINKS)
def test_a_next_page_that_has_no_address(link: str, server: Server) -> None:
    server.fail("body", json.dumps({"r": [], "next": link}).encode())
    error = Poll(server.url("/all"), records="r", paging="link", next="next").error()
    assert isinstance(error, Mistake) and "a next page that has no HTTP address" in error.what


def test_a_secret_address_is_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_URL", server.url("/nothing/4711"))
    poll = Poll(Secret("API_URL"), retries=0)
    assert poll.news().summary == "asks secret(API_URL)"
    for kind, value in (("status", 404), ("status", 503), ("drop", None), ("body", b"no")):
        server.fail(kind, value)
        error = str(poll.error())
        assert "secret(API_URL)" in error and "4711" not in error and server.host not in error
    monkeypatch.setenv("API_URL", "4711")
    assert "secret(API_URL) does not hold an HTTP address" in poll.error().what and "4711" not in str(poll.error())
