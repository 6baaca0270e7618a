"""A share of the days changed, 100 million rows: whatever the plan chooses must not cost more than computing it all.

Measured as in the part `slices`: whole runs in a warm Spark. Runs in full stand at the beginning, in the middle and at
the end, so that what comes in meanwhile and a drift of the machine concern both sides. Before each of them the
table is compared with what DuckDB makes of the sales.
"""

import statistics
from collections.abc import Callable

from bench.figure import Figure
from bench.sales import ANSWER, FLOW, MADE, arrive, fill, sales
from bench.sliced import Rows, require_answer, rounded, seconds, warm, watched
from runnel.client.lake import Lake

ROWS = 100_000_000
SHARES = (0.01, 0.1, 0.3, 0.5, 1.0)
TIMES = 2


def run(rows: int = ROWS) -> list[Figure]:
    made, full = sales(rows), []
    taken: dict[float, list[float]] = {share: [] for share in SHARES}
    chosen: dict[float, list[str]] = {share: [] for share in SHARES}
    with warm(FLOW) as lake:
        fill(lake, made)
        _round(lake, made, lambda share: share < 0.1, at=0)  # warms up
        full.append(seconds(lake.run, MADE, full_refresh=True))
        for at in range(1, TIMES + 1):
            for share, (took, action) in _round(lake, made, lambda _: True, at).items():
                taken[share].append(took)
                chosen[share].append(action)
            require_answer(lake, MADE, ANSWER)
            full.append(seconds(lake.run, MADE, full_refresh=True))
    return [_figure(made, share, taken[share], chosen[share], full) for share in SHARES]


def _round(lake: Lake, made: Rows, wanted: Callable[[float], bool], at: int) -> dict[float, tuple[float, str]]:
    """Change each share of the days and run; return how long that took and what was chosen to do."""
    found = {}
    for share in filter(wanted, SHARES):
        arrive(lake, made, share, first=at)
        found[share] = watched(lake, MADE)
    return found


def _figure(made: Rows, share: float, taken: list[float], chosen: list[str], full: list[float]) -> Figure:
    details: dict[str, object] = {
        "seconds": rounded(taken),
        "full_seconds": rounded(full),
        "action": chosen,
        "equal": True,
    }
    name = f"{share:.0%} of {made.slices} days changed, {made.slices * made.in_slice:,} rows: incremental / full"
    return Figure(name, statistics.median(taken) / statistics.median(full), "", "<= 1.15", details)
