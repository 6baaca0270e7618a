"""Whatever a stream does with its rows, in however many batches: its table is that of the same query in batch."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.run.stream.kafka_events import Events, rows_of
from tests.run.stream.stream_operators import OPERATORS, SQL, STATE, STATIC, TABLES
from tests.servers.kafka import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession", kafka: Server) -> Events:
    """Return a project whose streams have taken events in two runs, the second of which closes all windows."""
    found = Events(tmp_path_factory.mktemp("operators"), spark, kafka)
    state = STATE if find_spec("google") else ""
    found.streams(STATIC + "".join(text for _, text in OPERATORS.values()) + state)
    found.write("flows/dws/sql_minute.sql", SQL)
    for step in (first, then):
        step(found)
        found.ran()
    return found


def first(events: Events) -> None:
    page(events, "a", 1)
    events.click((1, "/a", "ada", "10:00:00"), (2, "/health", "bot", "10:00:10"), (3, "/a", "bob", "10:01:30"))
    events.click((4, "/a", "ada", "10:01:00"), (1, "/a", "ada", "10:00:00"))
    events.buy((100, 1, 7, "10:04:00"))


def then(events: Events) -> None:
    page(events, "b", 2)
    events.click((5, "/b", "ada", "10:02:10"), (3, "/a", "bob", "10:01:30"), (6, "/a", "bob", "10:00:50"))
    events.click((7, "/b", "cyd", "10:20:00"), (8, "/b", "cyd", "10:19:00"))
    events.buy((101, 3, 9, "10:03:00"), (102, 1, 1, "10:09:59"), (103, 2, 5, "10:30:00"))
    events.click((9, "/b", "dan", "10:19:30"), (99, "/close", "end", "2026-01-03T00:00:00Z"))
    events.buy((104, 8, 3, "10:25:00"), (199, 98, 0, "2026-01-03T00:00:00Z"))


def page(events: Events, name: str, number: int) -> None:
    events.write(f"data/pages/{name}.csv", f"page,title\n/{name},{name.upper()}\n")
    events.write(f"data/prices/{name}.csv", f"page,price\n/{name},{number}\n")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_stream_equals_the_batch(streamed: Events, table: str) -> None:
    found = rows_of(streamed, table)
    assert found
    assert found == streamed.in_batch(table)


def test_state_in_python(streamed: Events) -> None:
    assert rows_of(streamed, "dws.seen") == streamed.in_batch("dws.seen")
