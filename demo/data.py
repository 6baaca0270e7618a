"""Make the orders, sellers and receipts of a small shop: the same ones every time."""

import csv
import random
from datetime import date, timedelta
from pathlib import Path

SELLERS = [
    "Aurora Books",
    "Bergamot",
    "Cobalt Bikes",
    "Dune Outdoor",
    "Ember & Oak",
    "Fjord Wool",
    "Garnet Home",
    "Harbor Tea",
]
CITIES = ["Lisbon", "Osaka", "Lima", "Oslo", "Pune", "Turin"]
STATUSES = ["paid", "paid", "paid", "shipped", "shipped", "cancelled"]
HEAD = ["order_id", "seller_id", "day", "status", "amount"]
PER_WEEK = 6_000


def make(folder: Path) -> None:
    """Write sellers, two weeks of orders, and what comes later: two more weeks, one with bad rows, and a late order."""
    chance = random.Random(7)
    _write(
        folder / "sellers.csv",
        ["seller_id", "name", "city"],
        [[n, name, CITIES[n % 6]] for n, name in enumerate(SELLERS, 1)],
    )
    number = 1
    for week in range(4):
        days = [date(2026, 1, 1) + timedelta(days=7 * week + day) for day in range(7)]
        orders, number = _orders(chance, days, number)
        if week == 3:  # the till counted some orders twice, and booked some refunds as orders
            orders = [*orders[:-3], *([*order[:3], "paid", f"-{order[4]}"] for order in orders[-3:])]
            _write(folder / "later" / "week4_twice.csv", HEAD, [*orders, *orders[:2]])
        place = "orders" if week < 2 else "later"
        _write(folder / place / f"week{week + 1}.csv", HEAD, orders)
    late = [number, 3, "2026-01-03", "paid", "12.50"]
    _write(folder / "later" / "late.csv", HEAD, [late])
    receipts = folder / "receipts" / "2026-01"
    receipts.mkdir(parents=True, exist_ok=True)
    for order in orders[:40]:
        (receipts / f"{order[0]}.txt").write_text(f"order {order[0]}\nseller {order[1]}\namount {order[4]}\n")
    (receipts / "scan.bin").write_bytes(chance.randbytes(3_000_000))


def _orders(chance: random.Random, days: list[date], number: int) -> tuple[list[list[object]], int]:
    orders: list[list[object]] = []
    for _ in range(PER_WEEK):
        amount = round(chance.lognormvariate(3.2, 0.8), 2)
        seller = chance.randint(1, len(SELLERS))
        orders.append([number, seller, chance.choice(days).isoformat(), chance.choice(STATUSES), f"{amount:.2f}"])
        number += 1
    return orders, number


def _write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
