"""Stock Spark with its Kafka connector, whose jars are pinned and fetched as Runnel's are.

They are fetched one by one and not with what they depend on: Spark has the rest. The connector asks for a token
provider of its own version, which only matters where Kafka hands out delegation tokens; an older one does.
"""

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Stock
from runnel.spark.jvm import cache_dir, maven_resolver
from runnel.spark.jvm.jars import Jar, has_pinned_sum, is_present
from runnel.spark.jvm.java_home import find_java

JARS = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.1.3",
        491_701,
        "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        64_975,
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        9_215_194,
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        152_289,
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)
UNUSED = (
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
)
STREAM = """
import time
from pyspark.sql import functions as F

def stream(topic, table, schema, **trigger):
    spark.sql(f"CREATE TABLE {{table}} ({{schema}}) USING iceberg")
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", {servers!r}).option("subscribe", topic)
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", {most})
    rows = read.load().select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")
    write = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoints/{{topic}}")
    return write.format("iceberg").outputMode("append").trigger(**trigger).toTable(table)
"""


@dataclass(frozen=True)
class Streaming(Stock):
    """A lake that a hand-written Structured Streaming job fills from Kafka."""

    def conf(self) -> dict[str, str]:
        found = super().conf()
        jars = ",".join([found["spark.jars"], *map(str, connector())])
        return {**found, "spark.jars": jars, "spark.driver.memory": "4g"}

    def write(self, servers: str, most: int, text: str) -> Path:
        """Write the script: a session, a function `stream(topic, table, schema, **trigger)`, and some text."""
        start = STREAM.format(servers=servers, most=most, folder=self.folder)
        path = self.folder / "script.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self.session()}\n{start}\n{text}")
        return path

    def location(self, table: str) -> str | None:
        """Return where the metadata of a table is now; None where there is no such table yet."""
        layer, _, name = table.partition(".")
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        try:
            with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)) as connection:
                found = connection.execute(query, (layer, name)).fetchone()
        except sqlite3.OperationalError:  # Spark has not made the catalog yet
            return None
        return str(found[0]) if found is not None else None


def connector() -> list[Path]:
    """Return the paths of the connector's jars, fetching what is not there yet."""
    home = cache_dir.ensure_folder("jars")
    for jar in JARS:
        if not is_present(home, jar):
            _fetch(jar, home)
    return [home / jar.file_name for jar in JARS]


def _fetch(jar: Jar, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-", dir=home) as staging:
        unused = [name for name in UNUSED if name != f"{jar.group}:{jar.name}"]
        outcome = maven_resolver.resolve_jars(find_java(), [jar.coordinate], Path(staging), unused)
        came = outcome.folder / f"{jar.group}_{jar.file_name}"
        if not came.is_file():
            raise RuntimeError(f"{jar.file_name} did not come: {outcome.reason}")
        if not has_pinned_sum(came, jar):
            raise RuntimeError(f"{jar.file_name} has another sum than the one that is pinned")
        came.replace(home / jar.file_name)
