"""What a run does to an API that fails: it asks a bounded number of times, publishes nothing, and goes on later."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.backoff import doubling_pauses
from runnel.errors import Unreachable
from runnel.run.results.run_result import RunResult
from tests.connect.http.http_feed import Poll
from tests.connect.http.test_http import declare, ids, order
from tests.run.project import Project, did
from tests.servers.http_server import Server

PAGES = ', records="data.items", paging="page", since="at", timeout="2 seconds"'


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.records = [order(number) for number in range(1, 7)]
        yield server


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr("runnel.connect.http.client._BACKOFF", doubling_pauses(0.001))
    return Project(tmp_path)


def refused(ran: RunResult) -> Unreachable:
    """Return why a run failed because of its API."""
    (error,) = ran.errors
    assert isinstance(error, Unreachable) and ran.exit_code == 3 and ran.commit is None and error.fix
    return error


class Wire:
    """Listens on a port and does to the first connection what it is told, byte by byte, once it was asked."""

    def __init__(self, act: Callable[[socket.socket, threading.Event], None], port: int = 0) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self._act = act
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/page"

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            found, _ = self._listening.accept()
            with found:
                while b"\r\n\r\n" not in found.recv(65536):
                    pass
                self._act(found, self._over)


def drip(head: bytes, piece: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Return what sends the same piece again and again, each well within a timeout, and never comes to an end."""

    def act(found: socket.socket, over: threading.Event) -> None:
        found.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head + b"\r\n\r\n")
        while not over.wait(0.005):
            found.sendall(piece)

    return act


def test_an_api_that_always_fails_is_asked_as_often_as_declared(shop: Project, server: Server) -> None:
    declare(shop, server.url("/all"), ", retries=3")
    server.fail("status", 503, times=99)
    error = refused(shop.run())
    assert error.code == "HTTP_FAILED" and len(server.requests) == 4
    server.heal()
    assert did(shop.run()) == {"ods.orders": "ingest"} and ids(shop) == [1, 2, 3, 4, 5, 6]


def test_a_poll_whose_first_question_fails_is_not_asked_more_often(shop: Project, server: Server) -> None:
    server.has_etags = True
    declare(shop, server.url("/all"), ", retries=3")
    shop.run()
    server.requests.clear()
    server.fail("status", 503, times=99)
    with pytest.raises(Unreachable):
        raise shop.run().errors[0]
    assert len(server.requests) == 4


def test_a_page_that_fails_for_long_publishes_nothing(shop: Project, server: Server) -> None:
    declare(shop, server.url("/page"), f"{PAGES}, retries=2")
    server.fail("cut", skip=1, times=99)
    assert "its answer is incomplete" in refused(shop.run()).what
    assert [one.query["page"] for one in server.requests] == ["1", "2", "2", "2"]
    server.heal()
    assert did(shop.run()) == {"ods.orders": "ingest"} and ids(shop) == [1, 2, 3, 4, 5, 6]
    assert did(shop.run()) == {}


def test_a_server_that_dies_in_the_middle_of_a_page(shop: Project, server: Server) -> None:
    def die(found: socket.socket, over: threading.Event) -> None:
        body = json.dumps({"data": {"items": [order(1), order(2)]}}).encode()
        found.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:30]))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as the end of a process does
        wire._listening.close()

    with (wire := Wire(die)) as url:
        declare(shop, url, f"{PAGES}, retries=2")
        error = refused(shop.run())
    assert error.code == "HTTP_UNREACHABLE" and "it refuses the connection" in error.what
    declare(shop, server.url("/page"), PAGES)
    assert did(shop.run()) == {"ods.orders": "ingest"} and ids(shop) == [1, 2, 3, 4, 5, 6]


ENDLESS = {
    "of a great length": drip(b"Content-Length: 1000000", b" "),
    "in chunks": drip(b"Transfer-Encoding: chunked", b"1\r\n \r\n"),
    "of no length": drip(b"Connection: close", b" "),
}


@pytest.mark.parametrize("act", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_never_ends(
    act: Callable[[socket.socket, threading.Event], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.connect.http.client._MAX_TIMEOUTS", 0.1)  # of a timeout that no busy machine meets
    with Wire(act) as url:
        poll = Poll(url, timeout_seconds=10, retries=9)
        error = poll.error()
    assert isinstance(error, Unreachable) and error.was_retried and not poll.pauses
    assert "does not end: it has been arriving for 1 s" in error.what and "timeout=" in str(error.fix)


def test_a_cursor_that_repeats_itself_is_told_by_the_run(shop: Project, server: Server) -> None:
    server.is_endless = True
    declare(shop, server.url("/cursor"), ', records="items", paging="cursor", cursor="meta.next_cursor"')
    ran = shop.run()
    assert [error.code for error in ran.errors] == ["HTTP_ENDLESS"] and ran.commit is None
    assert len(server.requests) == 4  # three pages, and the first once more
