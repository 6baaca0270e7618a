"""Events over HTTP: one, several, a line each; once by key; what can't be read takes nothing; many clients at once."""

import gzip
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.control import declarations, tokens
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.names import TableName
from runnel.project.inspection.declarations import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from tests.service.api.api_server import Api, serving

FLOW = """
import runnel as rn
rn.source("ods.events", rn.http(schema="id long, kind string"))
rn.source("ods.keyed", rn.http(schema="id long, kind string", key="id"))
rn.source("ods.people", rn.changes(rn.http(schema="id long, name string, at long"), key="id", sequence_by="at"))
rn.source("ods.files", rn.files("*.csv", schema="id long"))
"""
LINES = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


class Pushing:
    """A served project to whose sources events are pushed."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def push(self, body: Any, source: str = "ods.events", **options: Any) -> requests.Response:
        given = {"data": body, "headers": JSON} if isinstance(body, str | bytes) else {"json": body}
        given["headers"] = {**given.get("headers", {}), **options.pop("headers", {})}
        return self.api.ask("POST", f"/sources/{source}/events", **given, **options)

    def taken(self, body: Any, source: str = "ods.events", **options: Any) -> tuple[int, int]:
        found = self.push(body, source, **options)
        assert found.status_code == 202, found.text
        assert found.json()["source"] == source
        return found.json()["taken"], found.json()["known"]

    def kept(self, source: str = "ods.events") -> list[str]:
        inbox, table = InboxReader(self.api.lake.store.db), TableName.parse(source)
        lots = inbox.read_batches(table, 0, inbox.read_level(table).last)
        return [line for lot in lots for line in lot.body.decode().split("\n") if line]


def opened(root: Path, catalog: str) -> Lake:
    (root / "flows").mkdir()
    (root / "runnel.toml").write_text(f'[project]\nname = "shop"\n[lake]\ncatalog = "{catalog}"\n')
    (root / "flows/flow.py").write_text(FLOW)
    lake = rn.open(root)
    declarations.write_declarations(lake.store.db, collect_declarations(load_project_flow(lake)))  # as a worker does
    return lake


@pytest.fixture
def pushing(tmp_path: Path, catalog: str) -> Iterator[Pushing]:
    """Serve a project of its own, on SQLite and on PostgreSQL."""
    with opened(tmp_path, catalog) as lake, serving(lake) as api:
        yield Pushing(api)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Pushing]:
    """Serve a project of its own, on SQLite."""
    with opened(tmp_path, f"sqlite:///{tmp_path}/catalog.db") as lake, serving(lake) as api:
        yield Pushing(api)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushing]:
    """Serve a project that takes nothing."""
    root = tmp_path_factory.mktemp("pushed")
    with opened(root, f"sqlite:///{root}/catalog.db") as lake, serving(lake) as api:
        yield Pushing(api)
        assert Pushing(api).kept() == []


def test_one_several_and_a_line_each(pushing: Pushing) -> None:
    assert pushing.taken({"id": 1, "kind": "a"}) == (1, 0)
    assert pushing.taken('[{"id": 2},\n {"id": 3.10,\n "more": [1, {"x": null}]}]\n') == (2, 0)
    assert pushing.taken('\ufeff{"id": 4}\r\n\n  {"id": 12345678901234567890.5}\n', headers=LINES) == (2, 0)
    assert pushing.taken([]) == (0, 0) and pushing.taken("\n", headers=LINES) == (0, 0)
    packed = gzip.compress(b'{"id": 5}\n{"id": 6}\n')
    assert pushing.taken(packed, headers=LINES | {"Content-Encoding": "gzip"}) == (2, 0)
    assert pushing.kept() == [
        '{"id": 1, "kind": "a"}',
        '{"id": 2}',
        '{"id": 3.10,  "more": [1, {"x": null}]}',
        '{"id": 4}',
        '{"id": 12345678901234567890.5}',
        '{"id": 5}',
        '{"id": 6}',
    ]


def test_unread_events_are_shown_while_no_worker_is_running(quick: Pushing) -> None:
    """Before a worker has read any of them, over REST and for Prometheus."""
    quick.taken([{"id": 1}, {"id": 2}, {"id": 3}])
    (stream,) = quick.api.get("/streams")["streams"]
    assert (stream["table"], stream["kind"], stream["behind_rows"]) == ("ods.events", "source", 3)
    assert 0 <= stream["behind_seconds"] < 60 and stream["looked_at"] is None
    authorization = {"Authorization": f"Bearer {quick.api.secret}"}
    metrics = requests.get(f"{quick.api.url}/metrics", headers=authorization).text
    assert re.search(r'^runnel_stream_behind_rows\{[^}]*table="ods\.events"[^}]*\} 3\.0$', metrics, re.MULTILINE)
    assert re.search(r'^runnel_stream_behind_seconds\{[^}]*table="ods\.events"[^}]*\} \d', metrics, re.MULTILINE)


def test_large_batches(quick: Pushing) -> None:
    lines = [f'{{"id": {number}, "kind": "{"x" * 100}"}}' for number in range(20_000)]
    assert quick.taken("\n".join(lines), headers=LINES) == (20_000, 0)
    assert quick.taken(f"[{','.join(lines[:1000])}]") == (1000, 0)
    assert quick.kept() == [*lines, *lines[:1000]]


def test_events_are_known_by_their_key(pushing: Pushing) -> None:
    assert pushing.taken([{"id": 1}, {"id": 2}], "ods.keyed") == (2, 0)
    assert pushing.taken([{"ID": 2, "kind": "again"}, {"id": 3}, {"id": "3"}], "ods.keyed") == (1, 2)
    assert pushing.taken([{"kind": "none"}, {"id": None}], "ods.keyed") == (2, 0)  # no row, as a run will find
    assert len(pushing.kept("ods.keyed")) == 5


def test_a_request_is_known_by_its_key(pushing: Pushing) -> None:
    key = {"Idempotency-Key": "monday-1"}
    first, again = (pushing.push([{"id": 1}, {"id": 2}], headers=key) for _ in range(2))
    assert first.json() == again.json() == {"source": "ods.events", "taken": 2, "known": 0}
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"
    other = pushing.push([{"id": 3}], headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "KEY_REUSED")
    assert pushing.taken([{"id": 3}], "ods.keyed", headers=key) == (1, 0)  # each source has its own
    secret = tokens.create(pushing.api.lake.store.db, "bob", "write")
    assert pushing.taken([{"id": 3}], headers=key, secret=secret) == (1, 0)  # and each token
    assert len(pushing.kept()) == 3


def test_events_for_a_log_of_changes(quick: Pushing) -> None:
    assert quick.taken({"id": 1, "name": "Ada", "at": 1}, "ods.people") == (1, 0)
    assert quick.kept("ods.people__changes") == ['{"id": 1, "name": "Ada", "at": 1}']


def test_many_clients_at_once(pushing: Pushing) -> None:
    """All that was answered is there, each event once, though every request is sent twice."""
    begin = threading.Barrier(20)

    def client(number: int) -> int:
        with requests.Session() as session:
            begin.wait()
            count = 0
            for one in range(5):
                url, lines = f"{pushing.api.url}/api/v1/sources/ods.keyed/events", [{"id": number * 100 + one}]
                headers = {"Authorization": f"Bearer {pushing.api.secret}"}
                found = [session.post(url, json=lines, headers=headers, timeout=60).json() for _ in range(2)]
                count += sum(answer["taken"] for answer in found)
            return count

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(client, range(20))) == 100
    assert sorted(json.loads(line)["id"] for line in pushing.kept("ods.keyed")) == sorted(
        number * 100 + one for number in range(20) for one in range(5)
    )


def test_who_may_push(quick: Pushing) -> None:
    reader = tokens.create(quick.api.lake.store.db, "bob", "read")
    for secret, status, code in ((reader, 403, "TOKEN_FORBIDDEN"), ("rnl_wrong", 401, "TOKEN_INVALID")):
        for _ in range(2):
            found = quick.push({"id": 1}, secret=secret)
            assert (found.status_code, found.json()["code"]) == (status, code)
    url = f"{quick.api.url}/api/v1/sources/ods.events/events"
    assert requests.post(url, json={}).json()["code"] == "TOKEN_MISSING"
    assert quick.kept() == []


WRONG: dict[str, tuple[Any, dict[str, str], int, str, str]] = {
    "nothing": ("", JSON, 422, "EVENTS_MALFORMED", "the body"),
    "half an object": ('{"id": ', JSON, 422, "EVENTS_MALFORMED", "at position 8"),
    "two objects": ('{"id": 1} {"id": 2}', JSON, 422, "EVENTS_MALFORMED", "x-ndjson"),
    "a number": ("7", JSON, 422, "EVENTS_MALFORMED", "the body can't be read: it is a number"),
    "a bad element": ('[{"id": 1}, {"id": }]', JSON, 422, "EVENTS_MALFORMED", "element 2"),
    "an element that is no object": (
        '[{"id": 1}, [2]]',
        JSON,
        422,
        "EVENTS_MALFORMED",
        "element 2 can't be read: it is an array",
    ),
    "no comma": ('[{"id": 1} {"id": 2}]', JSON, 422, "EVENTS_MALFORMED", "element 1"),
    "an array that does not end": ('[{"id": 1},', JSON, 422, "EVENTS_MALFORMED", "element 2"),
    "more after an array": ('[{"id": 1}] x', JSON, 422, "EVENTS_MALFORMED", "there is more after its end"),
    "NaN": ('{"id": NaN}', JSON, 422, "EVENTS_MALFORMED", "NaN is not JSON"),
    "too deep": ("[" * 100_000, JSON, 422, "EVENTS_MALFORMED", "nested too deeply"),
    "a number without end": ('{"id": ' + "1" * 10_000 + "}", JSON, 422, "EVENTS_MALFORMED", "the body"),
    "a bad line": ('{"id": 1}\n\n{"id: 2}\n', LINES, 422, "EVENTS_MALFORMED", "line 3"),
    "two objects in a line": ('{"id": 1}\n{"id": 2}{"id": 3}\n', LINES, 422, "EVENTS_MALFORMED", "line 2"),
    "an object over two lines": ('{"id": [1\n2]},{"id": 2}\n', LINES, 422, "EVENTS_MALFORMED", "line 1"),
    "no UTF-8": (b'{"id": 1}\n{"kind": "\xff"}\n', LINES, 422, "EVENTS_MALFORMED", "line 2 can't be read: byte 0xff"),
    "no gzip": (b"{}", LINES | {"Content-Encoding": "gzip"}, 422, "EVENTS_MALFORMED", "not gzip"),
    "half of gzip": (
        gzip.compress(b"{}\n" * 100)[:-10],
        LINES | {"Content-Encoding": "gzip"},
        422,
        "EVENTS_MALFORMED",
        "ends too early",
    ),
    "packed otherwise": ("{}", JSON | {"Content-Encoding": "br"}, 415, "EVENTS_MEDIA_TYPE", "gzip"),
    "a form": (
        "id=1",
        {"Content-Type": "application/x-www-form-urlencoded"},
        415,
        "EVENTS_MEDIA_TYPE",
        "application/json",
    ),
    "too large": (b" " * (9 * 2**20), JSON, 413, "EVENTS_TOO_LARGE", "8 MiB"),
    "too large once unpacked": (
        gzip.compress(b" " * (9 * 2**20)),
        JSON | {"Content-Encoding": "gzip"},
        413,
        "EVENTS_TOO_LARGE",
        "8 MiB",
    ),
    "too many lines": (b"{}\n" * 100_001, LINES, 413, "EVENTS_TOO_LARGE", "100,000 events"),
    "too many elements": (b"[" + b"{}," * 100_000 + b"{}]", JSON, 413, "EVENTS_TOO_LARGE", "100,000 events"),
    "a key that is none": ("{}", JSON | {"Idempotency-Key": "a b"}, 422, "REQUEST_INVALID", "header"),
}


@pytest.mark.parametrize(("body", "headers", "status", "code", "word"), WRONG.values(), ids=WRONG)
def test_what_takes_nothing(
    seen: Pushing, body: Any, headers: dict[str, str], status: int, code: str, word: str
) -> None:
    found = seen.push(body, headers=headers)
    assert (found.status_code, found.json()["code"]) == (status, code), found.text
    assert word in found.json()["detail"] + found.text and (found.json()["fix"] or status == 422)
    assert seen.kept() == []


NAMES = {
    "unknown": ("ods.event", 404, "SOURCE_UNKNOWN", "close: `ods.events`"),
    "of another kind": ("ods.files", 409, "SOURCE_NOT_PUSHED", "its source is files"),
    "no name": ("Events", 422, "NAME_TABLE", "layer.name"),
}


@pytest.mark.parametrize(("name", "status", "code", "word"), NAMES.values(), ids=NAMES)
def test_where_nothing_can_be_pushed(seen: Pushing, name: str, status: int, code: str, word: str) -> None:
    found = seen.push({"id": 1}, name)
    assert (found.status_code, found.json()["code"]) == (status, code), found.text
    assert word in found.text


def test_before_a_worker_has_told_what_there_is(api: Api) -> None:
    found = api.ask("POST", "/sources/ods.orders/events", json={"id": 1})
    assert (found.status_code, found.json()["code"]) == (503, "SOURCES_UNDECLARED")


def test_who_waits_for_the_database_holds_up_nobody(tmp_path: Path) -> None:
    """What can't be written yet is not answered, and the service answers others meanwhile."""
    path = tmp_path / "catalog.db"
    with opened(tmp_path, f"sqlite:///{path}") as lake, serving(lake) as api, ThreadPoolExecutor(1) as pool:
        pushing = Pushing(api)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = pool.submit(pushing.taken, {"id": 1})
            assert requests.get(f"{api.url}/health").status_code == 200
            assert not waiting.done()
            other.execute("ROLLBACK")
        assert waiting.result(60) == (1, 0) and pushing.kept() == ['{"id": 1}']
