"""A shop whose orders are handed on: a project without tasks, so that no test here needs Spark."""

import json
from pathlib import Path
from typing import Any

import runnel as rn
from runnel.run.results.delivery_result import DeliveryResult
from tests.connect.sinks.unit_deliveries import delivering_in_units, is_delivering_in_units
from tests.faults.process_helpers import killed, start
from tests.run.project import Project

SOURCE = 'rn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, day date, amount decimal(12,2)"))\n'
KILLED = "sink.accepted:kill"


class Shop(Project):
    """A project with one source, `ods.orders`, and the sinks of a test."""

    def sinks(self, *lines: str) -> None:
        """Declare sinks, one a line; a line may be a whole function."""
        self.write("flows/flow.py", "import runnel as rn\n\n" + SOURCE + "\n".join(lines) + "\n")

    def day(self, name: str, *rows: tuple[int, str, str]) -> None:
        """Write a file of orders: (id, day, amount)."""
        self.orders(name, *rows)  # type: ignore[arg-type]

    def sent(self) -> DeliveryResult:
        """Run, and return what became of the one sink that something was delivered to."""
        (found,) = self.run().sinks
        return found

    def killed(self, fail: str = KILLED) -> None:
        """Run in a process of its own, which is killed at a failpoint."""
        process = start(run_in_units if is_delivering_in_units() else run, self.root, fail=fail)
        assert killed(process), f"it never reached {fail} (exit code {process.exitcode})"

    def states(self) -> list[dict[str, Any]]:
        """Return what `runnel sinks --json` says."""
        with self.open() as lake:
            return [one.json() for one in lake.sinks()]

    def deliver(self) -> tuple[DeliveryResult, ...]:
        """Do `runnel sinks deliver`."""
        from runnel.project.execution.deliver_sinks import deliver_now

        with self.open() as lake:
            return deliver_now(lake, None, None)

    def lines(self, name: str = "log.jsonl") -> list[Any]:
        """Return what a function of the flow has written."""
        path = self.root / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(root: Path) -> None:
    """Run a project as it is, in a process that may be killed."""
    with rn.open(root) as lake:
        lake.run()


def run_in_units(root: Path) -> None:
    """Run a project whose sinks are delivered to in work units, in a process that may be killed."""
    with delivering_in_units():
        run(root)
