"""A small run, warm and cold: one new file of 1,000 orders, taken in and summed up by day and seller.

Warm is `runnel run` in a project that is up, and beside it the same asked for over REST; cold is the same command with
`--local`, which starts Spark. They take turns in one project, and in the end all rows are compared.
"""

import random
import statistics
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.peers import runnel
from bench.served import Service, served

PORT = 8484
WARM_UP = 100  # until then Java still compiles: its share of a run falls from 1.7 s to 0.45 s of CPU
REPEATS = 9
ORDERS = 1000
SELLERS = 50
FLOW = """
import runnel as rn
from pyspark.sql import functions as F

rn.source("ods.orders", rn.files("data/*.csv", schema="order_id long, seller_id long, day date, amount decimal(12,2)"))


@rn.task("dws.seller_day", by="day")
def seller_day(orders):
    return orders.groupBy("seller_id", "day").agg(F.sum("amount").alias("revenue"))
"""


class Shop:
    """The project, and what its table should hold."""

    def __init__(self, root: Path) -> None:
        self.root, self.days = root, 0
        self.revenue: dict[tuple[int, str], int] = {}
        for folder in ("flows", "data"):
            (root / folder).mkdir()
        (root / "runnel.toml").write_text('[project]\nname = "small"\n')
        (root / "flows" / "flow.py").write_text(FLOW)

    def come(self) -> None:
        """Let the orders of another day come."""
        day, dice = f"2026-{self.days // 28 + 1:02}-{self.days % 28 + 1:02}", random.Random(self.days)
        lines = ["order_id,seller_id,day,amount"]
        for number in range(ORDERS):
            seller, cents = dice.randrange(SELLERS), dice.randrange(10_000)
            lines.append(f"{self.days * ORDERS + number},{seller},{day},{cents // 100}.{cents % 100:02}")
            self.revenue[seller, day] = self.revenue.get((seller, day), 0) + cents
        (self.root / "data" / f"{self.days}.csv").write_text("\n".join(lines) + "\n")
        self.days += 1

    def require(self, service: Service) -> None:
        """Raise where the table holds anything else."""
        asked = {"sql": "select seller_id, day, revenue from dws.seller_day", "limit": 10_000}
        found = service.ask("POST", "/query", asked)["rows"]
        told = {(seller, str(day)): round(float(revenue) * 100) for seller, day, revenue in found}
        if told != self.revenue:
            raise RuntimeError(f"the table has {len(told)} rows that are not the {len(self.revenue)} expected")


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        shop = Shop(Path(name))
        shop.come()
        with served(shop.root, PORT) as service:
            for _ in range(WARM_UP):
                _asked(shop, service)
            warm, asked, cold = [], [], []
            for _ in range(REPEATS):
                warm.append(_commanded(shop))
                asked.append(_asked(shop, service))
                cold.append(_commanded(shop, "--local"))
            shop.require(service)
    middle = {what: statistics.median(times) for what, times in (("warm", warm), ("rest", asked), ("cold", cold))}
    details: dict[str, object] = {
        "warm_all": [round(took, 3) for took in warm],
        "rest_all": [round(took, 3) for took in asked],
        "cold_all": [round(took, 3) for took in cold],
        "runs_before": WARM_UP,
        "equal": True,
    }
    ratio = middle["cold"] / middle["warm"]
    return [
        Figure("small run: the command cold / the command in a warm service", ratio, "", ">= 10", details),
        Figure("small run: the command in a warm service, until visible", middle["warm"], "s", "<= 1.5 s"),
        Figure("small run: the command cold / asked for over REST", middle["cold"] / middle["rest"]),
        Figure("small run: asked for over REST, until visible", middle["rest"], "s"),
        Figure("small run: the command cold", middle["cold"], "s"),
    ]


def _commanded(shop: Shop, *words: str) -> float:
    shop.come()
    return runnel(shop.root, "run", *words).seconds


def _asked(shop: Shop, service: Service) -> float:
    return service.timed_run(shop.come)
