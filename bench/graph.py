"""Graphs of tables, written out as a Runnel project, as a plain PySpark script and as a Spark Declarative Pipelines
project. The expression or query that makes a table is the same text in all three.

The expressions avoid what `spark-pipelines` 4.1.3 can't do: `drop` and `distinct` fail while a flow is registered, and
after `withColumn` a refresh left Iceberg tables without rows.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

A_FILE = 10  # so many tables are declared in one Python file
ORDERS = "order_id long, user_id long, day date, amount decimal(12,2), status string"
USERS = "user_id long, city string"


@dataclass(frozen=True)
class Made:
    """A table and what makes it: an expression over the tables that it reads, called `a` and `b`, or a query."""

    table: str
    reads: tuple[str, ...] = ()
    python: str = ""
    sql: str = ""

    @property
    def name(self) -> str:
        return self.table.replace(".", "_")


@dataclass(frozen=True)
class Graph:
    """Sources, each a folder of CSV files with its columns, and the tables made of them, each after what it reads."""

    sources: tuple[tuple[str, str], ...]
    made: tuple[Made, ...]

    @property
    def tables(self) -> list[str]:
        return [*(table for table, _ in self.sources), *(made.table for made in self.made)]

    @property
    def layers(self) -> list[str]:
        return list(dict.fromkeys(table.split(".")[0] for table in self.tables))


def wide(tasks: int, layers: int = 5) -> Graph:
    """Return a graph of Python tasks in layers, where each reads one or two tables of the layer before."""
    width, made = tasks // layers, []
    for at in range(width * layers):
        layer, number = divmod(at, width)
        table = f"l{layer}.t{at:04}"
        if layer == 0:
            made.append(Made(table, ("ods.orders",), f'a.where(F.col("user_id") % {width} == {number})'))
        elif number % 2:
            reads = (made[-width].table, made[-width - 1].table)
            made.append(Made(table, reads, f'a.unionByName(b).where(F.col("order_id") % {layer + 7} > 0)'))
        else:
            columns = f'"order_id", "user_id", "day", (F.col("amount") + {number}).alias("amount"), "status"'
            made.append(Made(table, (made[-width].table,), f"a.select({columns})"))
    return Graph((("ods.orders", ORDERS),), tuple(made))


def shop() -> Graph:
    """Return 20 tables such as a shop has them: cleaned, joined, summed up; 14 in Python and 6 in SQL."""
    a, joined = "ods.orders", 'a.join(b, "user_id")'
    made = (
        Made("dwd.sold", (a,), 'a.where("status <> \'void\'").select("*", F.expr("bigint(amount * 100) cents"))'),
        Made("dwd.voids", (a,), 'a.where(F.col("status") == "void").select("order_id", "user_id", "amount")'),
        Made("dwd.returns", (a,), 'a.where(F.col("status") == "returned").select("order_id", "user_id", "day")'),
        Made("dwd.people", ("ods.users",), 'a.select("user_id", F.upper("city").alias("city"))'),
        Made("dwd.days", (a,), 'a.groupBy("day", F.month("day").alias("month")).agg(F.count("*").alias("n"))'),
        Made("dwd.first", (a,), 'a.groupBy("user_id").agg(F.min("day").alias("first_day"))'),
        Made("dwd.sold_where", ("dwd.sold", "dwd.people"), joined),
        Made("dwd.large", sql="select order_id, user_id, amount from dwd.sold where amount >= 90"),
        Made("dws.day", ("dwd.sold",), 'a.groupBy("day").agg(F.sum("amount").alias("amount"), F.expr("count(*) n"))'),
        Made("dws.user", ("dwd.sold",), 'a.groupBy("user_id").agg(F.sum("cents").alias("cents"))'),
        Made("dws.city", ("dwd.sold_where",), 'a.groupBy("city").agg(F.sum("amount").alias("amount"))'),
        Made("dws.status", (a,), 'a.groupBy("status").agg(F.count("*").alias("n"))'),
        Made("dws.city_day", sql="select city, day, sum(amount) as amount from dwd.sold_where group by city, day"),
        Made("dws.month", sql="select month, count(*) as n from dwd.days group by month"),
        Made("dws.returned", ("dwd.returns",), 'a.groupBy("user_id").agg(F.count("*").alias("n"))'),
        Made("dws.large_user", sql="select user_id, max(amount) as amount from dwd.large group by user_id"),
        Made("ads.best_city", sql="select city, amount from dws.city order by amount desc, city limit 5"),
        Made("ads.cohort", ("dwd.first", "dws.user"), f'{joined}.groupBy("first_day").agg(F.expr("sum(cents) cents"))'),
        Made("ads.sorry", ("dws.returned", "dwd.people"), f'{joined}.where("n > 1")'),
        Made("ads.totals", sql="select count(*) as days, sum(n) as orders, sum(amount) as amount from dws.day"),
    )  # fmt: skip
    return Graph((("ods.orders", ORDERS), ("ods.users", USERS)), made)


def write_data(folder: Path, graph: Graph, *, orders: int, users: int) -> None:
    """Write one CSV file for each source, always the same rows."""
    for table, _ in graph.sources:
        (folder / table).mkdir(parents=True)
    add_orders(folder, 0, orders, users)
    if "ods.users" in graph.tables:
        rows = (f"{user},city {user % 37}" for user in range(users))
        (folder / "ods.users" / "0.csv").write_text("\n".join(["user_id,city", *rows]) + "\n")


def add_orders(folder: Path, first: int, count: int, users: int) -> None:
    """Write a file with more orders."""
    dice, lines = random.Random(first), ["order_id,user_id,day,amount,status"]
    for order in range(first, first + count):
        day = date(2026, 1, 1) + timedelta(days=dice.randrange(60))
        status = dice.choice(["paid", "paid", "paid", "returned", "void"])
        lines.append(f"{order},{dice.randrange(users)},{day},{dice.randrange(100, 10000) / 100:.2f},{status}")
    (folder / "ods.orders" / f"{first}.csv").write_text("\n".join(lines) + "\n")


def write_project(root: Path, graph: Graph, data: Path) -> None:
    """Write a graph as a Runnel project; its sources read absolute paths, so that all peers share the files."""
    (root / "flows").mkdir(parents=True)
    (root / "runnel.toml").write_text('[project]\nname = "bench"\n')
    head = "import runnel as rn\nfrom pyspark.sql import functions as F\n"
    sources = [
        f'rn.source("{table}", rn.files("{data / table}/*.csv", schema="{schema}"))' for table, schema in graph.sources
    ]
    (root / "flows" / "sources.py").write_text("\n".join(["import runnel as rn\n", *sources]) + "\n")
    for number, some in enumerate(_files(graph)):
        texts = [_task(made) for made in some]
        (root / "flows" / f"part_{number:03}.py").write_text("\n\n".join([head, *texts]))
    for made in graph.made:
        if made.sql:
            layer, name = made.table.split(".")
            (root / "flows" / layer).mkdir(exist_ok=True)
            (root / "flows" / layer / f"{name}.sql").write_text(made.sql + "\n")


def _task(made: Made) -> str:
    names = ("a", "b")[: len(made.reads)]
    inputs = ", ".join(f'"{name}": "{table}"' for name, table in zip(names, made.reads, strict=True))
    return (
        f'@rn.task("{made.table}", inputs={{{inputs}}})\ndef {made.name}({", ".join(names)}):\n'
        f"    return {made.python}\n"
    )


def write_pipeline(root: Path, graph: Graph, data: Path, catalog: str) -> None:
    """Write a graph as a project for `spark-pipelines`: every table is a materialized view, in Iceberg."""
    (root / "transformations").mkdir(parents=True)
    (root / "spark-pipeline.yml").write_text(
        f"name: bench\nstorage: {(root / 'storage').as_uri()}\ncatalog: {catalog}\ndatabase: {graph.layers[0]}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    head = (
        "from pyspark import pipelines as dp\nfrom pyspark.sql import SparkSession\n"
        "from pyspark.sql import functions as F\n\nspark = SparkSession.active()\n"
    )
    texts = [_view(table, table.replace(".", "_"), [], _csv(data / table, schema)) for table, schema in graph.sources]
    (root / "transformations" / "sources.py").write_text("\n\n".join([head, *texts]))
    for number, some in enumerate(_files(graph)):
        texts = [_view(made.table, made.name, _frames(made), made.python) for made in some]
        (root / "transformations" / f"part_{number:03}.py").write_text("\n\n".join([head, *texts]))
    for made in graph.made:
        if made.sql:
            text = f"create materialized view {made.table} using iceberg as\n{made.sql};\n"
            (root / "transformations" / f"{made.name}.sql").write_text(text)


def _view(table: str, name: str, frames: Iterable[str], value: str) -> str:
    lines = [*frames, f"return {value}"]
    body = "".join(f"    {line}\n" for line in lines)
    return f'@dp.materialized_view(name="{table}", format="iceberg")\ndef {name}():\n{body}'


def write_script(path: Path, graph: Graph, data: Path, session: str) -> None:
    """Write a graph as a person writes it by hand: one table after the other. `session` starts Spark."""
    lines = [session, "from pyspark.sql import functions as F\n"]
    lines += [f'spark.sql("create namespace if not exists {layer}")' for layer in graph.layers]
    lines += [_write(_csv(data / table, schema), table) for table, schema in graph.sources]
    for made in graph.made:
        if made.sql:
            lines.append(_write(f'spark.sql("{made.sql}")', made.table))
        else:
            lines += [*_frames(made), _write(made.python, made.table)]
    path.write_text("\n".join([*lines, "spark.stop()"]) + "\n")


def _write(frame: str, table: str) -> str:
    return f'({frame}).writeTo("{table}").using("iceberg").createOrReplace()'


def _frames(made: Made) -> list[str]:
    return [f'{name} = spark.table("{table}")' for name, table in zip("ab", made.reads, strict=False)]


def _csv(folder: Path, schema: str) -> str:
    return f'spark.read.schema("{schema}").option("header", True).csv("{folder}")'


def _files(graph: Graph) -> Iterable[tuple[Made, ...]]:
    """Return the tables that are made in Python, file by file."""
    found = tuple(made for made in graph.made if made.python)
    return (found[at : at + A_FILE] for at in range(0, len(found), A_FILE))
