"""From orders as they came to the revenue of each seller per day."""

from pyspark.sql import functions as F

import runnel as rn


@rn.task(
    "dwd.paid_orders",
    rowwise=True,
    key="order_id",
    schema="order_id long, seller_id long, day date, amount decimal(12,2)",
    checks=[
        rn.not_null("order_id"),
        rn.unique("order_id"),
        rn.check("amount > 0", on_fail="quarantine"),
    ],
)
def paid_orders(orders):
    """Orders that were not cancelled.

    Each row comes from one row of ods.orders: only new rows are computed.
    """
    return orders.where(F.col("status") != "cancelled").drop("status")


@rn.task(
    "dws.seller_day",
    by="day",
    tags=["daily"],
    checks=[rn.references("seller_id", "ods.sellers.seller_id")],
)
def seller_day(paid_orders, *, min_amount: float = 0.0):
    """Revenue of each seller per day, of orders from `min_amount` on.

    Only days whose orders changed are computed.
    """
    return (
        paid_orders.where(F.col("amount") >= min_amount)
        .groupBy("seller_id", "day")
        .agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))
    )


rn.schedule("nightly", cron="0 2 * * *", tz="UTC", select="+ads.*")
