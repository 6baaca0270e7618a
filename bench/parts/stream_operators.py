"""What streams remember: a windowed count, a join of two streams and deduplication, against the same query in batch.

Both are tasks of one project, run one after the other in one session over the same rows; `lake.run()` lets the stream
take what came since it ran last, while the batch computes its table from all rows.
"""

import sys

from bench.figure import Figure
from bench.streamed import AT, IS_OPEN, Query, Table, measured

EVENTS = 2_000_000
FEW = 10_000
# One event in ten is its predecessor once more. Events are up to 20 seconds out of order.
ID = "n - (hash(n, 1) % 10 = 0)::int"
MS = "({id}) * 10 - (hash({id}, 2) % 20000)::bigint"
TABLES = [
    Table("clicks", f"{ID} AS id, '/page/' || hash({ID}, 3) % 100 AS page, {AT.format(ms=MS.format(id=ID))}"),
    Table("offers", f"n AS offer, hash(n, 4) % 1000 AS product, {AT.format(ms=MS.format(id='n'))}", "n % 2 = 0"),
    Table(  # up to 15 minutes after the offer, of which the join takes 10
        "buys",
        "n AS buy, n - 1 AS bought, hash(n, 5) % 10000 AS amount, "
        + AT.format(ms=f"{MS.format(id='n')} + 1000 * (hash(n, 6) % 900)::bigint"),
        "n % 2 = 1",
    ),
]
QUERIES = [
    Query(
        "windowed",
        "windowed count",
        ["clicks"],
        f"""
rows = clicks.where("{IS_OPEN}").groupBy(F.window("at", "1 minute"), "page").count()
return rows.selectExpr("window.start AS minute", "page", "count")
""",
        {"clicks": "1 minute"},
    ),
    Query(
        "joined",
        "stream-stream join",
        ["offers", "buys"],
        f"""
left = offers.where("{IS_OPEN}").alias("o")
right = buys.where("{IS_OPEN}").alias("b")
near = F.expr("b.bought = o.offer AND b.at BETWEEN o.at AND o.at + INTERVAL 10 minutes")
return left.join(right, near).selectExpr("offer", "product", "buy", "amount")
""",
        {"offers": "1 minute", "buys": "16 minutes"},
    ),
    Query(
        "once",
        "deduplication",
        ["clicks"],
        f"""return clicks.where("{IS_OPEN}").dropDuplicates(["id", "at"]).select("id", "page", "at")""",
        {"clicks": "1 minute"},
    ),
]


def run(events: int = EVENTS, few: int = FEW) -> list[Figure]:
    """Return the measurements; nothing is left behind."""
    return measured("streams", TABLES, QUERIES, events, few)


if __name__ == "__main__":
    for figure in run(*map(int, sys.argv[1:])):
        print(figure.line())
