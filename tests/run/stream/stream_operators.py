"""What a stream can do with its rows: each as a task, so that all of them read the same events side by side."""

CLOSED = "timestamp '2026-01-02'"  # a click of the next day closes all windows, and is none itself

OPERATORS = {
    "rowwise": (
        "dwd.views",
        """
@rn.task("dwd.views", stream="clicks")
def views(clicks):
    return clicks.where("page <> '/health'").selectExpr("id", "upper(page) AS page", "ts")
""",
    ),
    "tumbling window": (
        "dws.minute",
        f"""
@rn.task("dws.minute", stream="clicks", watermark=("ts", "5 minutes"))
def minute(clicks):
    rows = clicks.where("ts < {CLOSED}").groupBy(F.window("ts", "1 minute"), "page").count()
    return rows.selectExpr("window.start AS minute", "page", "count")
""",
    ),
    "sliding window": (
        "dws.sliding",
        f"""
@rn.task("dws.sliding", stream="clicks", watermark=("ts", "5 minutes"))
def sliding(clicks):
    rows = clicks.where("ts < {CLOSED}").groupBy(F.window("ts", "4 minutes", "2 minutes")).agg(F.sum("id").alias("ids"))
    return rows.selectExpr("window.start AS start", "ids")
""",
    ),
    "session window": (
        "dws.session",
        f"""
@rn.task("dws.session", stream="clicks", watermark=("ts", "5 minutes"))
def session(clicks):
    rows = clicks.where("ts < {CLOSED}").groupBy(F.session_window("ts", "90 seconds"), "user").count()
    return rows.selectExpr("session_window.start AS began", "session_window.end AS ended", "user", "count")
""",
    ),
    "window in update mode": (
        "dws.page_now",
        """
@rn.task("dws.page_now", stream="clicks", watermark=("ts", "5 minutes"), output="update", key=["minute", "page"],
         checks=[rn.unique("minute", "page")])
def page_now(clicks):
    rows = clicks.groupBy(F.window("ts", "1 minute"), "page").agg(F.count("id").alias("n"), F.max("id").alias("last"))
    return rows.selectExpr("window.start AS minute", "page", "n", "last")
""",
    ),
    "stream-static join": (
        "dwd.titled",
        """
@rn.task("dwd.titled", stream="clicks")
def titled(clicks, pages, prices):
    return clicks.join(pages, "page").join(prices, "page").select("id", "title", "price")
""",
    ),
    "stream-stream join": (
        "dwd.bought",
        """
@rn.task("dwd.bought", stream=["clicks", "buys"],
         watermark={"clicks": ("ts", "5 minutes"), "buys": ("at", "5 minutes")})
def bought(clicks, buys):
    near = F.expr("click = id AND at BETWEEN ts AND ts + INTERVAL 10 minutes")
    return clicks.join(buys, near).select("id", "page", "buy", "amount")
""",
    ),
    "stream-stream left outer join": (
        "dwd.clicked",
        f"""
@rn.task("dwd.clicked", stream=["clicks", "buys"],
         watermark={{"clicks": ("ts", "5 minutes"), "buys": ("at", "5 minutes")}})
def clicked(clicks, buys):
    near = F.expr("click = id AND at BETWEEN ts AND ts + INTERVAL 10 minutes")
    rows = clicks.join(buys, near, "left_outer").where("ts < {CLOSED}")
    return rows.select("id", "page", "buy", "amount")
""",
    ),
    "deduplication within watermark": (
        "dwd.once",
        """
@rn.task("dwd.once", stream="clicks", watermark=("ts", "1 hour"))
def once(clicks):
    once = clicks.dropDuplicatesWithinWatermark(["id"]) if clicks.isStreaming else clicks.dropDuplicates(["id"])
    return once.select("id", "page")
""",
    ),
    "deduplication": (
        "dwd.pair",
        """
@rn.task("dwd.pair", stream="clicks", watermark=("ts", "1 hour"))
def pair(clicks):
    return clicks.dropDuplicates(["user", "ts"]).select("user", "ts")
""",
    ),
}
STATE = """
@rn.task("dws.seen", stream="clicks", output="update", key="user")
def seen(clicks):
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle):
            self.n = handle.getValueState("n", "n long")

        def handleInputRows(self, key, frames, timers):
            n = sum(len(frame) for frame in frames) + (self.n.get()[0] if self.n.exists() else 0)
            self.n.update((n,))
            yield pd.DataFrame({"user": [key[0]], "n": [n]})

        def close(self):
            pass

    groups = clicks.groupBy("user")
    if not clicks.isStreaming:
        return groups.agg(F.count("id").alias("n"))
    return groups.transformWithStateInPandas(Counter(), "user string, n long", "Update", "None")
"""
SQL = """/* runnel
stream = "clicks"
watermark = ["ts", "5 minutes"]
*/
select window.start as start, count(*) as n from ods.clicks
where ts < timestamp '2026-01-02' group by window(ts, '2 minutes')
"""
TABLES = {name: table for name, (table, _) in OPERATORS.items()} | {"SQL": "dws.sql_minute"}
STATIC = """
rn.source("ods.pages", rn.files("data/pages/*.csv", schema="page string, title string"))
rn.source("ods.prices", rn.files("data/prices/*.csv", schema="page string, price long"))
"""
