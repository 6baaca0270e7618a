"""Whatever happens at an API between polls, and however it is paged: what came is what it has."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connect.http.http_feed import Poll
from tests.servers.http_server import Server

STYLES: list[tuple[str, dict[str, Any]]] = [
    ("/all", {}),
    ("/offset", {"records": "items", "paging": "offset", "param": "offset"}),
    ("/cursor", {"records": "items", "paging": "cursor", "param": "cursor", "cursor": "meta.next_cursor"}),
    ("/link", {"paging": "link"}),
]
# Each batch is what happens before a poll: how far the clock goes on, and which ids are written then.
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=5), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def moment(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


@settings(max_examples=25, deadline=None)
@given(batches=BATCHES, style=st.sampled_from(STYLES), size=st.integers(1, 4), by_key=st.booleans())
def test_polls(
    server: Server, batches: list[list[tuple[int, int]]], style: tuple[str, dict[str, Any]], size: int, by_key: bool
) -> None:
    path, options = style
    server.records, server.size = [], size
    poll = Poll(server.url(path), since=("since", "at"), key=("id",) if by_key else (), **options)
    state, clock, count, came = None, 0, 0, []
    for batch in batches:
        for seconds, number in batch:
            clock, count = clock + seconds, count + 1
            kept = [one for one in server.records if not by_key or one["id"] != number]
            server.records = [*kept, {"id": number, "at": moment(clock), "write": count}]
        records, found = poll.fetched(state)
        again, unchanged = poll.fetched(found.state)
        assert again == [] and unchanged.state == found.state
        state, came = found.state, came + records
    if by_key:
        came = list({record["id"]: record for record in came}.values())
    assert sorted(came, key=lambda one: one["write"]) == sorted(server.records, key=lambda one: one["write"])
