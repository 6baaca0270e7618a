"""Sources and tasks of this project. Uncomment to begin; `runnel validate` shows every mistake."""

# from pyspark.sql import functions as F
#
# import runnel as rn
#
# rn.source("ods.orders", rn.files("data/orders/*.csv", schema="order_id long, day date, amount decimal(12,2)"))
#
#
# @rn.task("dws.day", checks=[rn.check("revenue >= 0")])
# def day(orders):
#     """Revenue per day."""
#     return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
