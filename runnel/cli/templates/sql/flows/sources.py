"""Where the data comes from: tables that are read from files."""

import runnel as rn

rn.source(
    "ods.orders",
    rn.files(
        "data/orders/*.csv",
        schema="order_id long, seller_id long, day date, status string, amount decimal(12,2)",
    ),
    description="Orders as the shop exports them, one file per day.",
)
rn.source(
    "ods.sellers",
    rn.files("data/sellers.csv", schema="seller_id long, name string, city string"),
)
