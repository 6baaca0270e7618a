"""How far a sink has come is kept on both databases, and one process at a time delivers."""

import json
import threading
from collections.abc import Callable

from runnel.errors import Conflict
from runnel.lake.catalog import schema
from runnel.lake.flow_state.sink_positions import lease_sink, read_positions, reset_position
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.sinks.conftest import Command
from tests.connect.sinks.sink_project import Shop, run
from tests.connect.sinks.test_function_sink import PLAIN
from tests.faults.process_helpers import start

SLOW = """
import time
from pathlib import Path

@rn.sink("ods.orders")
def send(rows):
    root = Path(__file__).parent.parent
    with (root / "log.jsonl").open("a") as log:
        log.write(str(rows.num_rows) + "\\n")
    for _ in range(500):
        if (root / "go").exists():
            break
        time.sleep(0.02)
"""


def test_one_holds_it_at_a_time(both: Store) -> None:
    with lease_sink(both.db, "a") as mine:
        assert mine is not None
        with lease_sink(both.db, "a") as other:
            assert other is None
        with lease_sink(both.db, "b") as other:
            assert other is not None
    with lease_sink(both.db, "a") as mine:
        assert mine is not None


def test_it_moves_only_forward_for_who_holds_it(both: Store) -> None:
    commit = both.commit()
    with lease_sink(both.db, "a") as mine:
        assert mine is not None
        mine.record_failure("no route")
        mine.record_failure("no route")
        state = mine.read_position()
        assert (state.attempts, state.problem, state.delivered) == (2, "no route", None)
        mine.record_delivery(commit, None, 5, epoch=0)
        state = mine.read_position()
        assert (state.attempts, state.problem, state.delivered, state.rows) == (0, None, commit.id, 5)
        reset_position(both.db, "a")
        assert (mine.read_position().delivered, mine.read_position().epoch) == (None, 1)
        refused = _raises(lambda: mine.record_delivery(commit, None, 5, epoch=0))
        assert refused is not None and refused.code == "SINK_LOST"
    refused = _raises(lambda: mine.record_delivery(commit, None, 5, epoch=1))
    assert refused is not None and both.db.read(read_positions)["a"].delivered is None


def _raises(work: Callable[[], None]) -> Conflict | None:
    try:
        work()
    except Conflict as error:
        return error
    return None


def test_two_processes_at_once_deliver_once(shop: Shop) -> None:
    shop.sinks(SLOW)
    other = start(run, shop.root)
    wait = threading.Event()
    while not shop.lines():
        assert other.is_alive()
        wait.wait(0.02)
    (sent,) = shop.deliver()
    assert sent.state == "held"
    shop.write("go", "")
    other.join()
    assert other.exitcode == 0 and shop.deliver() == () and shop.lines() == [2]


def test_a_version_that_is_gone_means_everything_again(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.jdbc("sqlite:///o.db", table="o", mode="upsert", key="id"))', PLAIN)
    shop.run()
    shop.day("b", (3, "2026-01-03", "8.00"))
    lose_versions(shop)
    ran = shop.run()
    assert [(sent.state, sent.rows) for sent in ran.sinks] == [("delivered", 3), ("delivered", 3)]
    assert all("all rows were delivered again" in (sent.warning or "") for sent in ran.sinks)
    assert shop.lines() == [[1, 2], [1, 2, 3]]


def test_a_compaction_is_no_change(shop: Shop) -> None:
    from runnel.lake.upkeep.compact.compact import compact

    text = 'rn.source("ods.hand", rn.manual())' + PLAIN.replace("ods.orders", "ods.hand")
    shop.sinks(text)
    with shop.open() as lake:
        for _ in range(3):
            lake.load("ods.hand", shop.root / "data/orders/a.csv", schema="id long, day date, amount decimal(12,2)")
    assert [sent.rows for sent in shop.run().sinks] == [6]
    with shop.open() as lake:
        assert compact(lake.store, TableName("ods", "hand"), branch="main")[0].commit is not None
    shop.day("b", (3, "2026-01-03", "8.00"))
    assert shop.run().sinks == ()
    with shop.open() as lake:
        (state,) = lake.store.db.read(read_positions).values()
        assert state.location == lake.store.state()[TableName("ods", "hand")].location
        lake.load("ods.hand", shop.root / "data/orders/b.csv")
    assert [sent.rows for sent in shop.deliver()] == [1]


def test_erased_rows_go_from_what_is_written_anew(shop: Shop) -> None:
    from runnel.lake.upkeep.erase.erase import erase

    shop.sinks('rn.sink("ods.orders", rn.files("out.csv"))', PLAIN)
    shop.run()
    with shop.open() as lake:
        erase(lake.store, TableName("ods", "orders"), "id = 1")
    assert [sent.rows for sent in shop.deliver()] == [1, 1]
    assert (shop.root / "out.csv").read_text() == "id,day,amount\n2,2026-01-02,6.50\n"
    assert shop.lines() == [[1, 2], [2]]


def lose_versions(shop: Shop) -> None:
    """Let the sinks believe that they had a version whose file is gone, as gc leaves it."""
    with shop.open() as lake:
        gone = schema.deliveries.update().values(location=f"file://{shop.root}/gone.metadata.json")
        lake.store.db.write(lambda connection: connection.execute(gone))


def test_the_command_line(shop: Shop, command: Command) -> None:
    shop.sinks('rn.sink("ods.orders", rn.files("out/o.csv"), name="daily")')
    shop.write("out", "in the way")
    code, out, err = command("run")
    assert code == 0 and "warning: daily failed" in err and "published commit" in out
    (state,) = json.loads(command("sinks", "--json")[1])
    assert (state["sink"], state["state"], state["behind"]) == ("daily", "failing", 1)
    assert "SINK_FILE" in command("sinks")[2]
    code, _, err = command("sinks", "deliver")
    assert code == 1 and "SINK_FILE" in err
    (shop.root / "out").unlink()
    (sent,) = json.loads(command("run", "--json")[1])["sinks"]
    assert (sent["state"], sent["rows"], sent["error"]) == ("delivered", 2, None)
    assert "up to date" in command("sinks")[1]
    assert "every sink is up to date" in command("sinks", "deliver")[1]
    assert "starts again from the beginning" in command("sinks", "reset", "daily")[1]
    assert "delivered 2 rows to daily" in command("sinks", "deliver", "daily")[1]
    code, _, err = command("sinks", "reset", "dayly")
    assert code == 2 and "close: `daily`" in err
