"""One day of a hundred changed, 100 million rows: a run that computes that day against one that computes all of them.

Spark is warm; a run is the whole `lake.run(...)`: reading the project, planning, computing, publishing. `full` is the
same with `full_refresh=True`, `tiny` one on a table with the same days and ten rows in each, of which one changed too.
What no run can do without is its fixed share, tiny / full. A run that lost nothing else would take the changed share
and the fixed share of `full`, so that the bound of full / incremental is 1 / (changed share + fixed share); efficiency
is how much of the bound is reached. What changed is in the lake before a run starts: its load is not timed.

Beside it plain PySpark computes the same expressions in full, in the same Spark, into an Iceberg table with the same
partitions; its rows are compared with what the incremental runs have left.
"""

import statistics

from bench.figure import Figure
from bench.sales import FLOW, MADE, MADE_OF_FEW, ByHand, arrive, arrive_few, fill, sales
from bench.sliced import Rows, require_same_rows, rounded, seconds, version, warm, watched
from runnel.client.lake import Lake

ROWS = 100_000_000
WARM_UP = 3
TIMES = 5
FULL_TIMES = 3


def run(rows: int = ROWS) -> list[Figure]:
    made = sales(rows)
    with warm(FLOW) as lake:
        fill(lake, made)
        hand = ByHand(lake)
        times = _times(lake, made, hand)
    return _figures(made, times)


def _times(lake: Lake, made: Rows, hand: ByHand) -> dict[str, list[float]]:
    """Return the times of each kind of run; the first rounds of the short ones only warm up."""
    times: dict[str, list[float]] = {"full": [], "by_hand": [], "incremental": [], "tiny": []}
    for at in range(WARM_UP + TIMES):
        arrive_few(lake, made, at)
        times["tiny"].append(seconds(lake.run, MADE_OF_FEW))
        arrive(lake, made, 1 / made.slices, at)
        taken, action = watched(lake, MADE)
        if action != "slices":
            raise RuntimeError(f"one day was changed, and yet `{action}` was chosen")
        times["incremental"].append(taken)
    for _ in range(FULL_TIMES):
        times["by_hand"].append(seconds(hand.write))
        # Compared before anything is computed in full, which would mend what an incremental run has broken.
        require_same_rows(lake, version(lake, MADE), hand.version, "Runnel and hand-written PySpark")
        times["full"].append(seconds(lake.run, MADE, full_refresh=True))
    return {name: some[-TIMES:] for name, some in times.items()}


def _figures(made: Rows, times: dict[str, list[float]]) -> list[Figure]:
    middle = {name: statistics.median(some) for name, some in times.items()}
    full, incremental = middle["full"], middle["incremental"]
    fixed = middle["tiny"] / full
    bound = 1 / (1 / made.slices + fixed)
    details: dict[str, object] = {
        **{f"{name}_seconds": rounded(some) for name, some in times.items()},
        "fixed_share": round(fixed, 4),
        "bound": round(bound, 1),
        "equal": True,
    }
    shown = f"1 of {made.slices} days changed, {made.slices * made.in_slice:,} rows"
    return [
        Figure(f"{shown}: full / incremental", full / incremental, "", ">= 20", details),
        Figure(f"{shown}: share of the bound", 100 * full / incremental / bound, "%", ">= 50 %"),
        Figure(f"{shown}: hand-written PySpark in full / incremental", middle["by_hand"] / incremental),
        Figure(f"{shown}: full / hand-written PySpark in full", full / middle["by_hand"]),
        Figure(f"{shown}: incremental", incremental, "s"),
        Figure(f"{shown}: full", full, "s"),
    ]
