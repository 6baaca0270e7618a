"""Sales of a shop by day, and the task that sums them up by day and seller: as a flow, and as a person writes it.

The expressions are the same text in both. `ods.few` has the same days with hardly any rows, for what a run costs
whatever it computes.
"""

import sqlite3
from contextlib import closing

from bench.sliced import Rows, change, register, spread
from runnel.client.lake import Lake
from runnel.spark.catalog_conf import CatalogSettings, build_catalog_conf
from runnel.spark.session import create_slot_session

DAYS = 100
SELLERS = 10_000
LATE_ROWS = 1000  # come for each day that changes
SALES, FEW = "ods.sales", "ods.few"
MADE, MADE_OF_FEW = "dws.seller_day", "dws.few_day"
COLUMNS = (
    "i * 10000000 + (hash(i) % 10000000)::BIGINT AS order_id, DATE '2026-01-01' + slice::INTEGER AS day, "
    f"(hash(i, 1) % {SELLERS})::INTEGER AS seller_id, (hash(i, 2) % 100000)::INTEGER AS buyer_id, "
    "((hash(i, 3) % 100000)::BIGINT / 100)::DECIMAL(12, 2) AS amount"
)
AGGREGATES = (
    "count(*) AS orders",
    "sum(amount) AS revenue",
    "max(amount) AS largest",
    "max(order_id) AS newest",
)
ANSWER = f"SELECT day, seller_id, {', '.join(AGGREGATES)} FROM {SALES} GROUP BY day, seller_id"
FLOW = f"""
import runnel as rn
from pyspark.sql import functions as F

rn.source("{SALES}", rn.manual())
rn.source("{FEW}", rn.manual())


def summed(sales):
    return sales.groupBy("day", "seller_id").agg(*(F.expr(text) for text in {AGGREGATES}))


@rn.task("{MADE}", by="day")
def seller_day(sales):
    return summed(sales)


@rn.task("{MADE_OF_FEW}", by="day")
def few_day(few):
    return summed(few)
"""


def sales(rows: int, days: int = DAYS) -> Rows:
    """Return so many sales, the same number each day."""
    return Rows("sales", COLUMNS, days, max(1, rows // days))


def few(days: int = DAYS) -> Rows:
    """Return ten sales a day."""
    return Rows("few", COLUMNS, days, 10)


def fill(lake: Lake, rows: Rows) -> None:
    """Make both tables, and what the flow makes of them for the first time."""
    register(lake, SALES, rows, "day")
    register(lake, FEW, few(rows.slices), "day")
    lake.run()


def arrive(lake: Lake, rows: Rows, share: float, first: int = 0) -> None:
    """Let late sales come for a share of the days."""
    days = [(first + number) % rows.slices for number in spread(share, rows.slices)]
    change(lake, SALES, rows, days, LATE_ROWS)


def arrive_few(lake: Lake, rows: Rows, first: int = 0) -> None:
    """Let one late sale come for one of the days that have hardly any."""
    change(lake, FEW, few(rows.slices), [first % rows.slices], 1)


class ByHand:
    """The same table written in full by plain PySpark, in the same warm Spark, into a catalog of its own."""

    def __init__(self, lake: Lake) -> None:
        folder = lake.settings.root / "by_hand"
        folder.mkdir()
        self.database = folder / "catalog.db"
        own = CatalogSettings("by_hand", f"sqlite:///{self.database}", str(folder / "warehouse"))
        self.session = create_slot_session(lake.spark, own)
        lake_url = lake.store.db.url.render_as_string(hide_password=False)
        for key, value in build_catalog_conf("main", lake_url, lake.store.warehouse).items():
            self.session.conf.set(key, value)
        self.session.sql("CREATE NAMESPACE by_hand.dws")

    def write(self) -> None:
        """Compute and write everything."""
        from pyspark.sql import functions as F

        groups = self.session.table(f"main.{SALES}").groupBy("day", "seller_id")
        made = groups.agg(*(F.expr(text) for text in AGGREGATES))
        made.writeTo(f"by_hand.{MADE}").using("iceberg").partitionedBy(F.col("day")).createOrReplace()

    @property
    def version(self) -> str:
        """Return where the table is now."""
        with closing(sqlite3.connect(self.database)) as connection:
            return str(connection.execute("SELECT metadata_location FROM iceberg_tables").fetchall()[0][0])
