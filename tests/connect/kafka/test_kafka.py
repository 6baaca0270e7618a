"""Kafka as a source of a project: every message is in its table once, whatever happens, on a real broker."""

from pathlib import Path

import pytest

from runnel.connect.feed import failpoints
from tests.connect.kafka.kafka_project import IN_BOTH_PLACES, SCHEMA, A, B, C, Clicks, open_clicks
from tests.servers.kafka import PASSWORD, Server

POINTS = (*failpoints.ALL, "publish.before_commit", "publish.after_commit")


@pytest.fixture
def clicks(request: pytest.FixtureRequest, kafka: Server, tmp_path: Path) -> Clicks:
    return open_clicks(request, kafka, tmp_path)


@IN_BOTH_PLACES
def test_each_message_comes_once(clicks: Clicks) -> None:
    clicks.make(2)
    clicks.declare()
    clicks.put(A)
    clicks.put(B, partition=1)
    assert clicks.why() == f"ingest: 2 new messages in 2 partitions of {clicks.topic}"
    assert clicks.run() == {"ods.clicks": "ingest"}
    assert clicks.run() == {}
    clicks.put(C)
    assert clicks.why() == f"ingest: 1 new message in 1 partition of {clicks.topic}"
    assert clicks.run() == {"ods.clicks": "ingest"}
    assert clicks.rows() == [(1, "a"), (2, "b"), (3, "c")]
    with clicks.project.open() as lake:
        lines = str(lake.why("ods.clicks", row="id = 3")).splitlines()
        assert lines[3] == f"  messages   {clicks.topic}[0] offset 1"
        first = lake.why("ods.clicks", row="id = 1").rows[0].offsets
        assert [(span.partition, span.first, span.last) for span in first] == [(0, 0, 0), (1, 0, 0)]


@IN_BOTH_PLACES
def test_an_empty_topic_makes_an_empty_table(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare()
    assert clicks.run() == {"ods.clicks": "ingest"}
    assert (clicks.run(), clicks.rows()) == ({}, [])


@IN_BOTH_PLACES
@pytest.mark.parametrize(
    ("words", "row"), {"json": (f'schema="{SCHEMA}"', (2, "b")), "raw": ('format="raw"', (None, b"x"))}.values()
)
def test_latest_takes_what_comes_from_now_on(clicks: Clicks, words: str, row: tuple) -> None:
    clicks.make()
    clicks.put(A)
    clicks.declare(f'{words}, start="latest"')
    assert clicks.run() == {"ods.clicks": "ingest"}
    assert clicks.rows() == []
    clicks.put(b"x" if "raw" in words else B)
    assert clicks.run() == {"ods.clicks": "ingest"}
    assert [found[:2] for found in clicks.rows()] == [row]


def test_two_branches_that_read_the_same_have_the_same_content(clicks: Clicks) -> None:
    clicks.make()
    clicks.put(A, B)
    clicks.declare()
    with clicks.project.open() as lake:
        lake.branch("dev")
    contents = []
    for branch in ("main", "dev"):
        clicks.project.run(branch=branch)
        with clicks.project.open() as lake:
            state = lake.store.state(branch)
        contents += [version.content for table, version in state.items() if str(table) == "ods.clicks"]
    assert contents[0] == contents[1]


def test_a_revert_keeps_the_position(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A)
    clicks.run()
    clicks.put(B)
    ran = clicks.project.run()
    with clicks.project.open() as lake:
        lake.revert(ran.commit)
    assert clicks.run() == {}
    clicks.put(C)
    clicks.run()
    assert clicks.rows() == [(1, "a"), (3, "c")]


@IN_BOTH_PLACES
def test_columns_that_do_not_fit_are_told_with_their_offset(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare(on=', on_bad="quarantine"')
    clicks.put(A, None, {"id": "x"}, "[1]", b'{"id": 2,\n "page": "b"}', '{"id": ', {"id": "y"})
    clicks.run()
    assert clicks.rows() == [(1, "a"), (2, "b")]
    place = f"{clicks.topic}[0]"
    found = {row[1]: row[0] for row in clicks.project.rows("quarantine.ods_clicks")}
    assert {reason.split(":")[0]: raw for reason, raw in found.items()} == {
        f"{place}, offset 1": None,
        f"{place} from 0 to 6, line 3, column `id`": '{"id": "x"}',
        f"{place}, offset 3": "[1]",
        f"{place} from 0 to 6, line 6": '{"id":',
        f"{place} from 0 to 6, line 7, column `id`": '{"id": "y"}',
    }
    assert all(row[3] for row in clicks.project.rows("quarantine.ods_clicks"))


@IN_BOTH_PLACES
def test_a_secret_is_used_and_never_told(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.make()
    clicks.put(A)
    options = '{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ada", '
    options += '"sasl.password": rn.secret("KAFKA_SECRET")}'
    words = f'schema="{SCHEMA}", options={options}'
    text = f'rn.source("ods.clicks", rn.kafka("{clicks.topic}", servers="{clicks.server.sasl_servers}", {words}))'
    clicks.project.flow(text, orders=None)
    monkeypatch.setenv("KAFKA_SECRET", "not hers, but secret")
    error = clicks.fails()
    assert (error.code, error.exit_code) == ("KAFKA_REFUSED", 2)
    assert clicks.server.sasl_servers in error.what and "not hers" not in str(error)
    monkeypatch.setenv("KAFKA_SECRET", PASSWORD)
    assert clicks.run() == {"ods.clicks": "ingest"}
    kept = b"".join(path.read_bytes() for path in clicks.root.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept
