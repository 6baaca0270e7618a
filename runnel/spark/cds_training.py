"""Run typical work in a Spark session, so that the classes it loads get into the class-data-sharing archive.

Uses a small lake of its own in a folder that the caller removes.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATEMENTS = (
    "create namespace if not exists main.ods",
    "create table main.ods.a (id bigint, day date, v decimal(12,2), s string) using iceberg partitioned by (day)",
    "insert into main.ods.a select id, date '2026-01-01' + int(id % 3), id * 1.5, string(id) from range(100)",
    "insert into main.ods.a values (1, date '2026-01-09', 1.5, null)",
    "delete from main.ods.a where id = 7",
    "create table main.ods.b using iceberg as select day, sum(v) as v, count(*) as n from main.ods.a group by day",
    "select a.id, b.v, rank() over (partition by a.day order by a.id) r from main.ods.a a join main.ods.b b using (day)"
    " where a.s is not null order by 1 desc limit 5",
    "select count(distinct id), max(day), avg(v), collect_list(s) from main.ods.a",
    "select * from main.ods.a.snapshots",
)


def build_catalog(folder: Path) -> CatalogSettings:
    """Return the catalog settings of the training lake."""
    return CatalogSettings("main", f"sqlite:///{folder / 'catalog.db'}", str(folder / "warehouse"))


def run_training(spark: "SparkSession", folder: Path) -> None:
    """Create, write, read and join tables; read files; use a slot."""
    for statement in _STATEMENTS:
        spark.sql(statement).collect()
    (folder / "rows.csv").write_text("id,v\n1,a\n2,b\n")
    rows = spark.read.option("header", True).schema("id long, v string").csv(str(folder / "rows.csv"))
    rows.writeTo("main.ods.c").using("iceberg").createOrReplace()
    rows.write.parquet(str(folder / "rows.parquet"))
    spark.read.parquet(str(folder / "rows.parquet")).writeTo("main.ods.c").overwritePartitions()
    spark.createDataFrame([(1, "a")], "id long, v string").writeTo("main.ods.c").append()
    spark.table("main.ods.c").toArrow()
    slot = create_slot_session(
        spark, CatalogSettings("main", build_catalog(folder).database_url, str(folder / "warehouse"))
    )
    slot.sql("select * from ods.c").collect()
