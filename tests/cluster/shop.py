"""A shop whose data comes from everywhere: inputs that change in rounds, and projects that read and deliver them.

Several projects read the same inputs; each has tables and a folder of its own for what it delivers.
"""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from tests.servers.kafka import Server as Kafka

FLOW = """
import runnel as rn
from pyspark.sql import functions as F

DATABASE = "{database}"
rn.source("ods.orders", rn.files("{data}/orders/*.csv", schema="id long, day date, amount decimal(12,2)"),
          on_bad="quarantine")
rn.source("ods.clicks", rn.files("{data}/clicks/*.jsonl", schema="id long, page string"), on_bad="quarantine")
rn.source("ods.stock", rn.files("{data}/stock/*.parquet", schema="id long, day date, pieces long"))
rn.source("ods.customers", rn.changes(
    rn.files("{data}/customers/*.jsonl", schema="id long, ts long, op string, name string"),
    key="id", sequence_by="ts", delete_when="op = 'D'"))
rn.source("ods.people", rn.jdbc(DATABASE, table="people", key="id", partitions=2))
rn.source("ods.events", rn.kafka("events", servers="{kafka}", schema="id long, kind string"), on_bad="quarantine")
rn.sink("dws.day", rn.jdbc(DATABASE, table="{name}_day", mode="upsert", key="day"))
rn.sink("ods.customers", rn.jdbc(DATABASE, table="{name}_customers", mode="upsert", key="id"))
rn.sink("ods.orders", rn.files("export/orders/", format="parquet", partition=["day"]))
rn.sink("ods.people", rn.kafka("{name}_people", servers="{kafka}", key="id"))


@rn.task("dws.day", by="day")
def day(orders, stock):
    total = orders.groupBy("day").agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
    pieces = stock.groupBy("day").agg(F.sum("pieces").alias("pieces"))
    return total.join(pieces, "day", "left")


@rn.task("dws.page", key="page")
def page(clicks):
    return clicks.groupBy("page").agg(F.count("*").alias("clicks"))
"""
SETTINGS = """
[project]
name = "{name}"
[spark]
master = "{master}"
run_on = "{run_on}"
shared = ["/"]
[spark.conf]
"spark.driver.memory" = "1g"
"spark.executor.memory" = "640m"
"spark.sql.shuffle.partitions" = "2"
"spark.task.maxFailures" = "8"
"""
SECRET_SETTING = '"spark.authenticate.secret" = { env = "CLUSTER_SECRET" }\n'
_DAYS = [f"2026-01-{day:02}" for day in range(1, 8)]


class Shop:
    """The inputs of a shop; `change` lets some time pass for them."""

    def __init__(self, folder: Path, database: str, kafka: Kafka, chance: random.Random) -> None:
        self._data = folder / "data"
        self._address = database
        self.database = sa.create_engine(sa.make_url(database).set(drivername="postgresql+psycopg"))
        self.kafka = kafka
        kafka.topic("events", 3)
        self._chance = chance
        self._rounds = 0
        for name in ("orders", "clicks", "stock", "customers"):
            (self._data / name).mkdir(parents=True)
        with self.database.begin() as connection:
            connection.execute(sa.text("create table people (id bigint primary key, name text)"))
            connection.execute(sa.text("insert into people select g, 'p' || g from generate_series(1, 400) g"))

    def create_project(self, root: Path, master: str, run_on: str) -> None:
        """Write a project that reads the inputs."""
        (root / "flows").mkdir(parents=True)
        self.kafka.topic(f"{root.name}_people", 2)
        words = {"data": self._data, "database": self._address, "kafka": self.kafka.servers, "name": root.name}
        (root / "flows" / "shop.py").write_text(FLOW.format(**words))
        settings = SETTINGS.format(name=root.name, master=master, run_on=run_on)
        (root / "runnel.toml").write_text(settings + (SECRET_SETTING if master.startswith("spark:") else ""))

    def change(self) -> None:
        """Add, change and remove files, rows of the database, and messages."""
        self._rounds += 1
        self._change_orders()
        self._change_others()
        self._change_people()
        self._send_events()

    def _change_orders(self) -> None:
        for number in range(self._chance.randint(3, 6)):
            self._write_orders(self._data / "orders" / f"{self._rounds:03}-{number}.csv")
        old = sorted((self._data / "orders").glob("*.csv"))
        self._write_orders(self._chance.choice(old))
        if self._rounds > 1:
            self._chance.choice(old).unlink()

    def _write_orders(self, path: Path) -> None:
        rows = [
            f"{self._chance.randrange(10**6)},{self._chance.choice(_DAYS)},{self._chance.randrange(10**4) / 100}"
            for _ in range(self._chance.randint(20, 200))
        ]
        rows += self._chance.sample(["x,2026-01-01,1", "7,2026-13-01,1", "8,2026-01-02"], self._chance.randint(0, 2))
        path.write_text("\n".join(["id,day,amount", *rows]) + "\n")

    def _change_others(self) -> None:
        clicks = [json.dumps({"id": self._chance.randrange(10**6), "page": f"/{n % 7}"}) for n in range(50)]
        (self._data / "clicks" / f"{self._rounds:03}.jsonl").write_text("\n".join([*clicks, "{broken"]) + "\n")
        stock = [(n, self._chance.choice(_DAYS), self._chance.randrange(100)) for n in range(60)]
        table = pa.table(
            {
                "id": [row[0] for row in stock],
                "day": pa.array([row[1] for row in stock]).cast(pa.date32()),
                "pieces": [row[2] for row in stock],
            }
        )
        pq.write_table(table, self._data / "stock" / f"{self._rounds:03}.parquet", row_group_size=20)
        changes = [
            {
                "id": self._chance.randrange(40),
                "ts": self._rounds * 1000 + n,
                "op": self._chance.choice("UUUD"),
                "name": f"n{n}",
            }
            for n in range(60)
        ]
        text = "".join(json.dumps(change) + "\n" for change in changes)
        (self._data / "customers" / f"{self._rounds:03}.jsonl").write_text(text)

    def _change_people(self) -> None:
        first = self._chance.randrange(300)
        with self.database.begin() as connection:
            connection.execute(sa.text(f"delete from people where id between {first} and {first + 9}"))
            rows = f"select g, 'r{self._rounds}' from generate_series({first + 20}, {first + 60}) g"
            update = "on conflict (id) do update set name = excluded.name"
            connection.execute(sa.text(f"insert into people {rows} {update}"))

    def _send_events(self) -> None:
        for partition in range(3):
            rows = [{"id": self._rounds * 1000 + number, "kind": f"k{partition}"} for number in range(40)]
            self.kafka.put("events", *rows[:20], b"no json", *rows[20:], partition=partition)
