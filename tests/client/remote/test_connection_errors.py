"""A service that is not there, goes away, or is none; connections that are lost."""

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.remote.lake import RemoteLake
from runnel.errors import Mistake, RunnelError, Unreachable
from runnel.lake.control import tokens
from tests.client.remote.conftest import Pair
from tests.service.api.api_server import Api, serving, shop, working


def test_nobody_is_there() -> None:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}"
    with pytest.raises(Unreachable) as error:
        rn.open(url, token="x")
    assert (error.value.code, error.value.exit_code) == ("REMOTE_UNREACHABLE", 3)
    assert "refused" in error.value.what and "0x" not in error.value.what and error.value.fix


OTHERS = {
    "a page": ("text/html", b"<h1>It works!</h1>", 200),
    "another JSON": ("application/json", b'{"hello": "world"}', 200),
    "an error of its own": ("application/json", b'{"detail": "Not Found"}', 404),
    "somewhere else": ("text/html", b"", 302),
    "no JSON at all": ("application/json", b"{", 200),
}


@pytest.mark.parametrize(("kind", "body", "status"), OTHERS.values(), ids=OTHERS)
def test_a_server_that_is_no_runnel(kind: str, body: bytes, status: int) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(Mistake) as error:
            rn.open(f"http://127.0.0.1:{server.server_port}", token="x")
        server.shutdown()
    assert error.value.code == "REMOTE_NOT_RUNNEL"


ADDRESSES = ["http://", "ftp://x", "http://127.0.0.1:99999", "http://u:p@x", "http://x?y=1", "x://y"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address(address: str) -> None:
    with pytest.raises(Mistake) as error:
        rn.open(address, token="x")
    assert error.value.code == "OPEN_ADDRESS"


def test_tokens(seen: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url, secret = seen.api.url, seen.api.secret
    monkeypatch.delenv("RUNNEL_TOKEN", raising=False)
    with pytest.raises(Mistake) as wrong:
        rn.open(url, token="rnl_wrong")
    assert (wrong.value.code, wrong.value.exit_code) == ("TOKEN_INVALID", 2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match="needs a token"):
        rn.open(url)
    monkeypatch.setenv("RUNNEL_TOKEN", secret)
    assert rn.open(f"{url}/api/v1/").tables() == seen.local.tables()
    monkeypatch.delenv("RUNNEL_TOKEN")
    (tmp_path / "runnel.toml").write_text('[project]\nname = "x"\n')
    (tmp_path / ".runnel").mkdir()
    (tmp_path / ".runnel/up.json").write_text(f'{{"url": "{url}", "pid": 1, "started_at": ""}}')
    (tmp_path / ".runnel/token").write_text(secret + "\n")
    assert rn.open(url).tables() == seen.local.tables(), "as `runnel up` of this folder left it"
    with pytest.raises(Mistake, match="leave token out"):
        rn.open(tmp_path, token="x")  # type: ignore[call-overload]
    with pytest.raises(Mistake, match="settings"):
        rn.open(url, token="x", env="prod")  # type: ignore[call-overload]


def test_a_token_that_is_revoked_meanwhile(pair: Pair) -> None:
    secret = tokens.create(pair.local.store.db, "bob", "read")
    with rn.open(pair.api.url, token=secret) as lake:
        with pytest.raises(Mistake) as error:
            lake.branch("x")
        assert error.value.code == "TOKEN_FORBIDDEN"
        tokens.revoke(pair.local.store.db, "bob")
        with pytest.raises(Mistake) as gone:
            lake.tables()
        assert gone.value.code == "TOKEN_INVALID"


def test_a_query_that_takes_too_long(pair: Pair) -> None:
    pair.local.settings = replace(pair.local.settings, query_timeout_seconds=1)
    with pytest.raises(RunnelError) as error:
        pair.remote.query("select count(*) as n from " + ", ".join(f"ods.orders a{at}" for at in range(22)))
    assert error.value.code == "SQL_TIMEOUT"
    rows = pair.remote.query("select a0.id from " + ", ".join(f"ods.orders a{at}" for at in range(30)))
    with pytest.raises(RunnelError) as late:
        sum(batch.num_rows for batch in rows)
    assert late.value.code == "SQL_TIMEOUT", "told in the middle of the answer"


class Relay:
    """Hands connections on to a server; cuts the next ones where `cuts` says so, before or after they are answered."""

    def __init__(self, port: int) -> None:
        self.cuts: list[str] = []
        self._port = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                found, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._hand_on, args=(found,), daemon=True).start()

    def _hand_on(self, near: socket.socket) -> None:
        """Hand on one request after the other."""
        with near, socket.create_connection(("127.0.0.1", self._port)) as far, suppress(ConnectionError):
            while asked := _message(near):
                cut = self.cuts.pop(0) if self.cuts else ""
                if cut == "before":
                    return
                far.sendall(asked)
                answer = _message(far)
                if cut != "after":
                    near.sendall(answer[: len(answer) // 2] if cut == "amid" else answer)
                if cut:
                    return


def _message(found: socket.socket) -> bytes:
    """Return a whole request, or a whole answer."""
    whole = b""
    while part := found.recv(2**20):
        whole += part
        head, end, body = whole.partition(b"\r\n\r\n")
        sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        is_chunked = b"transfer-encoding: chunked" in head.lower()
        if end and (body.endswith(b"0\r\n\r\n") if is_chunked else len(body) >= (int(sizes[0][15:]) if sizes else 0)):
            break
    return whole


@contextmanager
def relayed(api: Api) -> Iterator[tuple[Relay, RemoteLake]]:
    relay = Relay(int(api.url.rpartition(":")[2]))
    with closing(relay), rn.open(relay.url, token=api.secret) as lake:
        yield relay, lake


@pytest.mark.parametrize("cut", ["before", "amid", "after"])
def test_what_was_asked_for_is_done_once(pair: Pair, cut: str) -> None:
    with relayed(pair.api) as (relay, lake):
        relay.cuts = [cut]
        assert lake.branch("fix").name == "fix"
        relay.cuts = [cut, cut]
        lake.submit("ods.more")
        relay.cuts = [cut]
        assert lake.merge("dev").commit is not None
        relay.cuts = [cut]
        assert lake.tables() == pair.local.tables()
        relay.cuts = [cut]
        path = pair.local.settings.root / "orders.csv"
        assert lake.put("raw.new", path).added + lake.put("raw.new", path).unchanged > 0
        relay.cuts = [cut]
        assert lake.rm("raw.new", "orders.csv").paths == ("orders.csv",)
    assert len(pair.local.runs()) == 1
    assert sum(one.kind == "merge" for one in pair.local.log()) == 1
    assert [one.message.split()[0] for one in pair.local.log(table="raw.new")] == ["remove", "put"]


def test_an_answer_that_is_cut_off(pair: Pair) -> None:
    with relayed(pair.api) as (relay, lake):
        relay.cuts = ["amid"]
        with pytest.raises(Unreachable) as error:
            lake.query("select * from ods.orders").table()
        assert error.value.code in ("REMOTE_CUT", "REMOTE_UNREACHABLE")


def test_it_goes_away_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """The service is stopped while a run is followed, and comes back at the same place: the run is followed on."""
    with shop(tmp_path) as lake:
        with serving(lake) as api:
            remote = rn.open(api.url, token=api.secret)
            run = remote.submit("ods.more").id
            done: list[Any] = []
            following = threading.Thread(target=lambda: done.append(remote.follow(run)), daemon=True)
            following.start()
        assert following.is_alive(), "it waits for what went away"
        port = int(api.url.rpartition(":")[2])
        with serving(lake, port=port, name="again") as again, working(again):
            following.join(60)
        assert [one.state for one in done] == ["succeeded"]
        remote._connection.patience_seconds = 0.3
        with pytest.raises(Unreachable, match="does not answer"):
            remote.tables()
        remote.close()
