"""`runnel merge`, `runnel revert` and `runnel load` hand on what they commit, and never fail because of a sink."""

import json
import shutil

import pytest

from tests.connect.sinks.conftest import Command
from tests.connect.sinks.sink_project import Shop

FLOW = """
import runnel as rn

rn.source("ods.hand", rn.manual())
rn.sink("ods.hand", rn.files("out/hand.csv"), name="hand")
"""
COMMANDS = {
    "merge": (("merge", "dev"), "merged dev into main", [1, 2, 3]),
    "revert": (("revert", "main"), "reverted", [1]),
    "load": (("load", "ods.hand", "{root}/3.csv"), "loaded ods.hand", [1, 2, 3]),
}
EACH = pytest.mark.parametrize(("words", "told", "expected"), COMMANDS.values(), ids=COMMANDS)


@pytest.fixture
def hand(shop: Shop) -> Shop:
    """Return a shop that has loaded two rows and delivered them, and on another branch a third one."""
    shop.write("flows/flow.py", FLOW)
    for number in (1, 2, 3):
        shop.write(f"{number}.csv", f"id\n{number}\n")
    with shop.open() as lake:
        lake.load("ods.hand", shop.root / "1.csv")
        lake.load("ods.hand", shop.root / "2.csv")
        lake.branch("dev")
        lake.load("ods.hand", shop.root / "3.csv", branch="dev")
    assert shop.sent().rows == 2
    return shop


def ids(shop: Shop) -> list[int]:
    return sorted(int(line) for line in (shop.root / "out/hand.csv").read_text().splitlines()[1:])


def placed(shop: Shop, words: tuple[str, ...]) -> list[str]:
    return [word.format(root=shop.root) for word in words]


@EACH
def test_it_is_delivered_at_once(
    hand: Shop, command: Command, words: tuple[str, ...], told: str, expected: list[int]
) -> None:
    code, out, _ = command(*placed(hand, words))
    first, last = out.splitlines()[-2:]
    assert code == 0 and first.startswith(told) and last.startswith("delivered")
    assert ids(hand) == expected and hand.run().sinks == ()


@EACH
def test_a_sink_that_refuses_fails_nothing(
    hand: Shop, command: Command, words: tuple[str, ...], told: str, expected: list[int]
) -> None:
    (hand.root / "out").rename(hand.root / "aside")
    hand.write("out", "in the way")
    code, out, _ = command(*placed(hand, words), "--json")
    (sent,) = json.loads(out)["sinks"]
    assert code == 0 and (sent["sink"], sent["state"], sent["error"]["code"]) == ("hand", "failed", "SINK_FILE")
    assert [row[0] for row in hand.rows("ods.hand")] == expected
    assert [(one["state"], one["behind"]) for one in hand.states()] == [("failing", 1)]
    (hand.root / "out").unlink()
    (hand.root / "aside").rename(hand.root / "out")
    assert hand.sent().state == "delivered" and ids(hand) == expected


def test_a_line_tells_of_a_sink_that_refuses(hand: Shop, command: Command) -> None:
    shutil.rmtree(hand.root / "out")
    hand.write("out", "in the way")
    code, out, err = command("revert", "main")
    assert code == 0 and "reverted" in out and "warning: hand failed; the next run tries again" in err


def test_a_project_that_cannot_be_loaded_fails_nothing(hand: Shop, command: Command) -> None:
    hand.write("flows/flow.py", "import runnel as rn\nrn.sink(")
    code, out, err = command("revert", "main")
    assert (
        code == 0 and "reverted" in out and "warning: nothing was delivered to sinks; the next run tries again" in err
    )
    hand.write("flows/flow.py", FLOW)
    assert hand.sent().state == "delivered" and ids(hand) == [1]


def test_other_branches_are_left_alone(hand: Shop, command: Command) -> None:
    code, out, _ = command("revert", "dev", "--branch", "dev")
    assert code == 0 and "delivered" not in out and ids(hand) == [1, 2]


def test_where_nothing_was_ever_delivered_a_run_begins(shop: Shop, command: Command) -> None:
    shop.write("flows/flow.py", FLOW)
    shop.write("1.csv", "id\n1\n")
    code, out, _ = command("load", "ods.hand", str(shop.root / "1.csv"))
    assert code == 0 and "delivered" not in out
    assert shop.sent().rows == 1 and ids(shop) == [1]
