"""`make bench-paired BASE=commit ONLY=word`: is Runnel slower than it was at a commit?

Both checkouts do the same work in turns, the first of each pair alternating, at least nine pairs. The ratio is
current / base; a workload fails if the whole interval of its median lies above 1.05. Results are kept in
bench/results/paired/.
"""

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench.paired.interval import Interval, median_interval
from bench.paired.work_tree import WorkTree, base_tree, current_tree
from bench.paired.workloads import WORKLOADS, Sample
from bench.run import RESULTS, machine

LIMIT = 1.05
PAIRS = 9
_PAIRED_RESULTS = RESULTS / "paired"


def main() -> None:
    base, only, pairs = os.environ.get("BASE", ""), os.environ.get("ONLY", ""), int(os.environ.get("PAIRS") or PAIRS)
    names = [name for name in WORKLOADS if not only or name in only.replace(",", " ").split()]
    if not base or not names or pairs < PAIRS:
        sys.exit(
            f"usage: make bench-paired BASE=commit [ONLY=workload,...] [PAIRS=n]; "
            f"workloads: {', '.join(WORKLOADS)}; at least {PAIRS} pairs"
        )
    with base_tree(base) as earlier:
        slower = [name for name in names if not measure(name, (earlier, current_tree()), pairs)]
    sys.exit(f"slower than {base}: {', '.join(slower)}" if slower else 0)


def measure(name: str, trees: tuple[WorkTree, WorkTree], pairs: int) -> bool:
    """Time a workload in both checkouts, print and keep the figures, and return whether it is not slower."""
    print(f"\n{name}: {trees[0].commit} against {trees[1].commit}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        samples = []
        for tree in trees:
            root = Path(folder) / tree.name
            root.mkdir()
            samples.append(stack.enter_context(WORKLOADS[name](tree, root)))
        times = {what: _in_turns(samples[0][what], samples[1][what], pairs) for what in samples[0]}
    intervals = {what: median_interval([new / old for old, new in both]) for what, both in times.items()}
    for what, interval in intervals.items():
        print(f"  {what:<48} {interval}  {_verdict(interval)}", flush=True)
    _keep(name, trees, times, intervals, time.monotonic() - started)
    return all(interval.low <= LIMIT for interval in intervals.values())


def _in_turns(base: Sample, current: Sample, pairs: int) -> list[tuple[float, float]]:
    for warm_up in (base, current):  # what is read or compiled once is not timed
        warm_up()
    times = []
    for number in range(pairs):
        if number % 2:
            new = current()
            times.append((base(), new))
        else:
            old = base()
            times.append((old, current()))
    return times


def _verdict(interval: Interval) -> str:
    return "SLOWER" if interval.low > LIMIT else "ok"


def _keep(
    name: str,
    trees: tuple[WorkTree, WorkTree],
    times: dict[str, list[tuple[float, float]]],
    intervals: dict[str, Interval],
    seconds: float,
) -> None:
    _PAIRED_RESULTS.mkdir(parents=True, exist_ok=True)
    document = {
        "workload": name,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "seconds": round(seconds, 1),
        "base": trees[0].commit,
        "machine": machine(),
        "ratios": {
            what: {
                "median": round(interval.median, 3),
                "low": round(interval.low, 3),
                "high": round(interval.high, 3),
                "base_seconds": [round(old, 3) for old, _ in times[what]],
                "current_seconds": [round(new, 3) for _, new in times[what]],
            }
            for what, interval in intervals.items()
        },
    }
    (_PAIRED_RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
