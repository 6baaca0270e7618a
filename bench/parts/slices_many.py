"""A table with 100,000 slices of which one changed: what a plan takes, against the same with 10 slices.

Both tables are partitioned by their key, with a Parquet file of one row for each slice. These are written beside the
lake and registered by one `lake.load(..., in_place=True)`, because the lake's own writer brings each file to the disk
by itself. The tables made of them, with as many slices, are written by one `lake.run`. Then a row comes for one key,
by an ordinary `lake.load`. A plan changes nothing, so that it is repeated; before each one everything that the process
has read of the lake is forgotten, as for a command that just started. The times of the whole command and of the run
stand beside it.
"""

import statistics

from bench.figure import Figure
from bench.peers import runnel
from bench.sliced import Rows, change, register, rounded, seconds, warm
from runnel.client.lake import Lake
from runnel.lake.iceberg import manifests, table_metadata

MANY, FEW = 100_000, 10
TIMES = 7
COMMAND_TIMES = 3
COLUMNS = "(hash(slice, i) % 1000000)::BIGINT AS amount, slice::INTEGER AS key"
FLOW = """
import runnel as rn
from pyspark.sql import functions as F

rn.source("ods.many", rn.manual())
rn.source("ods.few", rn.manual())


def summed(rows):
    return rows.groupBy("key").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))


@rn.task("dws.many", by="key")
def made_of_many(many):
    return summed(many)


@rn.task("dws.few", by="key")
def made_of_few(few):
    return summed(few)
"""


def run(many: int = MANY) -> list[Figure]:
    made = {name: Rows(name, COLUMNS, size, 1) for name, size in (("many", many), ("few", FEW))}
    with warm(FLOW) as lake:
        for name, rows in made.items():
            register(lake, f"ods.{name}", rows, "key")
        first = {name: seconds(lake.run, f"dws.{name}") for name in made}
        for name, rows in made.items():
            change(lake, f"ods.{name}", rows, [rows.slices // 2], 1)
        plans = _plans(lake)
        commands = {
            name: [runnel(lake.settings.root, "plan", "-s", f"dws.{name}").seconds for _ in range(COMMAND_TIMES)]
            for name in made
        }
        runs = _runs(lake, made)
    return _figures(made, plans, commands, runs, first)


def _plans(lake: Lake) -> dict[str, list[float]]:
    """Return how long plans take, the first of each left out, after seeing that they find the one slice."""
    found: dict[str, list[float]] = {"many": [], "few": []}
    for _ in range(TIMES + 1):
        for name, times in found.items():
            table_metadata.clear_cache()
            manifests.clear_cache()
            times.append(seconds(lake.plan, f"dws.{name}"))
    for name in found:
        slices = lake.plan(f"dws.{name}").json()["steps"][-1]["slices"]
        if not slices or slices["changed"] != 1:
            raise RuntimeError(f"the plan of dws.{name} should have 1 changed slice, but has {slices}")
    return {name: times[1:] for name, times in found.items()}


def _runs(lake: Lake, made: dict[str, Rows]) -> dict[str, list[float]]:
    """Return how long runs take that compute one slice, the first of each left out."""
    found: dict[str, list[float]] = {"many": [], "few": []}
    for at in range(COMMAND_TIMES + 1):
        for name, times in found.items():
            times.append(seconds(lake.run, f"dws.{name}"))
            change(lake, f"ods.{name}", made[name], [at % made[name].slices], 1)
    return {name: times[1:] for name, times in found.items()}


def _figures(
    made: dict[str, Rows],
    plans: dict[str, list[float]],
    commands: dict[str, list[float]],
    runs: dict[str, list[float]],
    first: dict[str, float],
) -> list[Figure]:
    details: dict[str, object] = {
        "plan_seconds": {name: rounded(times) for name, times in plans.items()},
        "command_seconds": {name: rounded(times) for name, times in commands.items()},
        "run_seconds": {name: rounded(times) for name, times in runs.items()},
        "first_run_seconds": {name: round(took, 1) for name, took in first.items()},
    }

    def ratio(times: dict[str, list[float]]) -> float:
        return statistics.median(times["many"]) / statistics.median(times["few"])

    shown, beside = f"1 of {made['many'].slices:,} slices changed", f"1 of {made['few'].slices}"
    return [
        Figure(f"{shown}: plan", statistics.median(plans["many"]), "s", "<= 2 s", details),
        Figure(f"{shown} / {beside}: plan", ratio(plans), "", "<= 3"),
        Figure(f"{shown} / {beside}: the command `runnel plan`", ratio(commands)),
        Figure(f"{shown} / {beside}: run, warm", ratio(runs)),
    ]
