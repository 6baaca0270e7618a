"""Fifty commits in a row on one table, each changing one day: what the last ones cost against the first ones.

An increment is a load of late rows for one day and the run that computes that day, both timed, in a warm Spark. A
table of its own warms up what the process needs, so that the measured one has no history when it starts. Medians of
five increments each; at the end the table is compared with what DuckDB makes of the sales.
"""

import statistics

from bench.figure import Figure
from bench.sales import ANSWER, FLOW, LATE_ROWS, MADE, MADE_OF_FEW, SALES, arrive_few, fill, sales
from bench.sliced import Rows, require_answer, rounded, seconds, warm
from runnel.client.lake import Lake

ROWS = 1_000_000
COMMITS = 50
WARM_UP = 20
ENDS = 5


def run(commits: int = COMMITS, rows: int = ROWS) -> list[Figure]:
    made = sales(rows)
    with warm(FLOW) as lake:
        fill(lake, made)
        for at in range(WARM_UP):
            arrive_few(lake, made, at)
            lake.run(MADE_OF_FEW)
        taken = _increments(lake, made, commits)
        require_answer(lake, MADE, ANSWER)
    first, last = taken[:ENDS], taken[-ENDS:]
    ratio = statistics.median(sum(one) for one in last) / statistics.median(sum(one) for one in first)
    details: dict[str, object] = {
        "load_seconds": rounded(load for load, _ in taken),
        "run_seconds": rounded(run for _, run in taken),
        "equal": True,
    }
    return [Figure(f"{commits} commits in a row, one day each: the last / the first", ratio, "", "<= 1.2", details)]


def _increments(lake: Lake, made: Rows, commits: int) -> list[tuple[float, float]]:
    """Return how long each load and each run took; the files to load are there before."""
    folder = lake.settings.root / "increments"
    files = [made.later(folder / f"{at}.parquet", [at * 7 % made.slices], LATE_ROWS) for at in range(commits)]
    return [(seconds(lake.load, SALES, file), seconds(lake.run, MADE)) for file in files]
