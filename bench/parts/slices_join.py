"""A join of two tables with 1,000 slices each, of which one changed on each side: two slices computed, or all of them.

Orders and payments have 10 million rows each, in the same buckets; the task joins them within a bucket and sums up by
customer. Measured as in the part `slices`: whole runs in a warm Spark, the loads of what changed not timed. The rows
after the incremental runs are compared with what DuckDB makes of both tables.
"""

import statistics

from bench.figure import Figure
from bench.sliced import Rows, change, register, require_answer, rounded, seconds, warm

ROWS = 10_000_000
SLICES = 1000
LATE_ROWS = 100
WARM_UP = 3
TIMES = 5
FULL_TIMES = 3
ORDERS, PAYMENTS, MADE = "ods.orders", "ods.payments", "dws.paid"
FLOW = f"""
import runnel as rn
from pyspark.sql import functions as F

rn.source("{ORDERS}", rn.manual())
rn.source("{PAYMENTS}", rn.manual())


@rn.task("{MADE}", by="bucket")
def paid(orders, payments):
    joined = orders.join(payments, ["bucket", "order_id"], "left")
    return joined.groupBy("bucket", "customer_id").agg(
        F.count("*").alias("orders"), F.sum("amount").alias("amount"), F.sum("paid").alias("paid")
    )
"""
ANSWER = f"""
SELECT bucket, customer_id, count(*) AS orders, sum(amount) AS amount, sum(paid) AS paid
FROM {ORDERS} LEFT JOIN {PAYMENTS} USING (bucket, order_id) GROUP BY bucket, customer_id
"""


def run(rows: int = ROWS, slices: int = SLICES) -> list[Figure]:
    orders, payments = _rows(rows, slices)
    taken, full = [], []
    with warm(FLOW) as lake:
        register(lake, ORDERS, orders, "bucket")
        register(lake, PAYMENTS, payments, "bucket")
        lake.run()
        for at in range(WARM_UP + TIMES):
            change(lake, ORDERS, orders, [2 * at % slices], LATE_ROWS)
            change(lake, PAYMENTS, payments, [(2 * at + 1) % slices], LATE_ROWS)
            taken.append(seconds(lake.run))
        require_answer(lake, MADE, ANSWER)
        full += [seconds(lake.run, full_refresh=True) for _ in range(FULL_TIMES)]
    taken = taken[WARM_UP:]
    details: dict[str, object] = {"seconds": rounded(taken), "full_seconds": rounded(full), "equal": True}
    ratio = statistics.median(full) / statistics.median(taken)
    name = f"join of two tables, 1 of {slices:,} slices changed on each side: full / incremental"
    return [Figure(name, ratio, "", ">= 10", details)]


def _rows(rows: int, slices: int) -> tuple[Rows, Rows]:
    def amount(name: str, seed: int) -> str:
        return f"((hash(i, {seed}) % 100000)::BIGINT / 100)::DECIMAL(12, 2) AS {name}"

    known = "slice::INTEGER AS bucket, i::BIGINT AS order_id"
    customer = "(hash(i, 1) % 1000)::INTEGER AS customer_id"
    each = max(1, rows // slices)
    return (
        Rows("orders", f"{known}, {customer}, {amount('amount', 2)}", slices, each),
        Rows("payments", f"{known}, {amount('paid', 3)}, 'method ' || hash(i, 4) % 5 AS method", slices, each),
    )
