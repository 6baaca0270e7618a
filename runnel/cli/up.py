"""`runnel up`: keep a project going, in the foreground."""

import signal
import sys
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import click

from runnel.cli.base import command, count, lake, print_json, say

if TYPE_CHECKING:
    from types import FrameType

    from runnel.client.keep import Keeper


@command()
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
def up(branch: str, as_json: bool) -> None:
    """Keep streams, sources that are polled, and schedules on changes going, until Ctrl-C."""
    from runnel.client.keep import Keeper
    from runnel.client.planning import flow_of

    with lake() as opened:
        opened.once = False
        keeper = Keeper(opened, flow_of(opened), branch, _tell)
        _greet(opened.settings.name, branch, keeper)
        _heed(keeper)
        try:
            with suppress(KeyboardInterrupt):
                keeper.run()
            say("stopping after what is under way; Ctrl-C again stops at once")
        finally:
            is_whole = keeper.end()
    if as_json:
        print_json({"run": keeper.run_id, "branch": branch, "state": "stopped" if is_whole else "torn"})
    if not is_whole:
        say("something did not end in time; nothing of it was published, and the next `runnel up` takes it up")
    sys.exit(0 if is_whole else 1)


def _greet(name: str, branch: str, keeper: "Keeper") -> None:
    kinds = {"Intake": "source", "Rerun": "source", "Follower": "stream", "Reaction": "schedule", "Delivery": "sinks"}
    counts: dict[str, int] = {}
    for part in keeper.parts:
        word = kinds.get(type(part).__name__)
        if word is not None:
            counts[word] = counts.get(word, 0) + 1
    told = ", ".join(word if word == "sinks" else count(number, word) for word, number in counts.items())
    say(f"{name} on {branch}: {told}; `runnel status` says how they are, Ctrl-C stops")


def _heed(keeper: "Keeper") -> None:
    """Stop in order at the first Ctrl-C or SIGTERM, and at once at the second."""

    def heard(number: int, frame: "FrameType | None") -> None:
        if keeper.stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt
        keeper.stop.set()

    signal.signal(signal.SIGINT, heard)
    signal.signal(signal.SIGTERM, heard)


def _tell(text: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {text}")
