"""Functions: called with the rows that came, commit by commit."""

import pytest

from tests.connect.sinks.sink_project import Shop

PLAIN = """
import json
from pathlib import Path

@rn.sink("ods.orders")
def send(rows):
    with (Path(__file__).parent.parent / "log.jsonl").open("a") as log:
        log.write(json.dumps(sorted(rows["id"].to_pylist())) + "\\n")
"""
WITH_CHANGE = """
import json
from pathlib import Path

@rn.sink("ods.orders", retries=0)
def send(rows, *, change):
    told = [sorted(rows["id"].to_pylist()), sorted(change.removed["id"].to_pylist()), change.is_whole, change.key]
    with (Path(__file__).parent.parent / "log.jsonl").open("a") as log:
        log.write(json.dumps(told) + "\\n")
    if (Path(__file__).parent.parent / "broken").exists():
        raise ValueError("the queue is full")
"""


def test_it_gets_what_came(shop: Shop) -> None:
    shop.sinks(PLAIN)
    shop.run()
    shop.day("b", (3, "2026-01-03", "8.00"))
    shop.run()
    assert shop.run().sinks == ()
    shop.day("a", (1, "2026-01-01", "5.00"))
    shop.run()
    assert shop.lines() == [[1, 2], [3]]


def test_it_gets_what_went_if_it_asks(shop: Shop) -> None:
    shop.sinks(WITH_CHANGE)
    shop.run()
    shop.day("a", (1, "2026-01-01", "5.50"))
    ran = shop.run()
    first, second = shop.lines()
    assert first[:3] == [[1, 2], [], True]
    assert second == [[1], [1, 2], False, f"ods.orders:send/{ran.commit}"]


def test_what_it_raises_is_kept_and_the_same_change_comes_again(shop: Shop) -> None:
    shop.sinks(WITH_CHANGE)
    shop.write("broken", "")
    ran = shop.run()
    (sent,) = ran.sinks
    assert ran.state == "succeeded" and sent.state == "failed"
    assert "ValueError: the queue is full" in str(sent.error) and "flows/flow.py" in str(sent.error)
    shop.day("b", (3, "2026-01-03", "8.00"))
    (shop.root / "broken").unlink()
    assert shop.sent().commits == 2
    lines = shop.lines()
    assert [line[0] for line in lines] == [[1, 2], [1, 2], [3]] and lines[0][3] == lines[1][3]


def test_its_sink_may_follow_another_branch(shop: Shop) -> None:
    shop.sinks(PLAIN.replace('("ods.orders")', '("ods.orders", branch="dev")'))
    assert shop.run().sinks == shop.deliver() == ()
    with shop.open() as lake:
        lake.branch("dev")
    shop.day("b", (3, "2026-01-03", "8.00"))
    assert [sent.rows for sent in shop.run(branch="dev").sinks] == [3]
    assert shop.lines() == [[1, 2, 3]]


@pytest.mark.parametrize("fail", ["sink.accepted:kill", "sink.sending:kill"])
def test_a_kill_means_the_same_key_again(shop: Shop, fail: str) -> None:
    shop.sinks(WITH_CHANGE)
    shop.killed(fail)
    shop.run()
    first, again = shop.lines()
    assert first == again
