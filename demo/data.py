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
STATUSES = ["paid", "paid", "paid", "shipped", "shipped", "returned"]


def make(folder: Path) -> None:
    chance = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    _write(
        folder / "sellers.csv",
        ["seller_id", "name", "city"],
        [[n, name, CITIES[n % 6]] for n, name in enumerate(SELLERS, 1)],
    )
    moved = [[n, name, "Porto" if n == 3 else CITIES[n % 6]] for n, name in enumerate(SELLERS, 1)]
    _write(folder / "sellers_corrected.csv", ["seller_id", "name", "city"], [*moved, [9, "Iris Ceramics", "Faro"]])
    first = date(2026, 1, 1)
    number = 1
    for week in range(4):
        days = [first + timedelta(days=7 * week + day) for day in range(7)]
        orders, number = _orders(chance, days, number, 6_000)
        _write(folder / f"orders_week{week + 1}.csv", ["order_id", "seller_id", "day", "status", "amount"], orders)
    doubled = [[order[0] + 900_000, *order[1:4], f"{float(order[4]) * 100:.2f}"] for order in orders[:500]]
    _write(folder / "orders_wrong_currency.csv", ["order_id", "seller_id", "day", "status", "amount"], doubled)
    broken = folder / "orders_broken.csv"
    broken.write_text("order_id,seller_id,day,status,amount\n1,1,2026-02-01,paid,10.00\n2,2,2026-02-30,paid,ten\n3,1\n")
    receipts = folder / "receipts" / "2026-01"
    receipts.mkdir(parents=True, exist_ok=True)
    for order in orders[:40]:
        (receipts / f"{order[0]}.txt").write_text(f"order {order[0]}\nseller {order[1]}\namount {order[4]}\n")
    (receipts / "scan.bin").write_bytes(chance.randbytes(3_000_000))


def _orders(chance: random.Random, days: list[date], number: int, count: int) -> tuple[list[list[object]], int]:
    orders: list[list[object]] = []
    for _ in range(count):
        amount = round(chance.lognormvariate(3.2, 0.8), 2)
        seller = chance.randint(1, len(SELLERS))
        orders.append([number, seller, chance.choice(days).isoformat(), chance.choice(STATUSES), f"{amount:.2f}"])
        number += 1
    return orders, number


def _write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
