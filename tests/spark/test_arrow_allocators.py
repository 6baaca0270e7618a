"""What Iceberg's readers leave open in Java is closed, and what is in use is not."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from runnel.spark.arrow_allocators import AllocatorSweeper


def test_allocators_of_readers_that_have_ended_are_closed(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.catalog.swept", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.swept.type", "hadoop")
    spark.conf.set("spark.sql.catalog.swept.warehouse", str(tmp_path))
    spark.range(100).writeTo("swept.a.t").create()
    root = _root(spark)
    before = root.getChildAllocators().size()
    assert spark.table("swept.a.t").selectExpr("sum(id)").first() == (4950,)
    assert root.getChildAllocators().size() > before  # where this fails, Iceberg closes them, and sweeping can go
    used = root.newChildAllocator("in use", 0, 1 << 20)
    buffer = used.buffer(64)
    sweeper = AllocatorSweeper(spark.sparkContext)
    assert sweeper.sweep() > 0  # idle once is not enough
    assert sweeper.sweep() == 0
    assert [one.getName() for one in root.getChildAllocators()] == ["in use"]
    assert spark.table("swept.a.t").selectExpr("sum(id)").first() == (4950,)
    buffer.close()
    assert sweeper.sweep() > 0
    assert (sweeper.sweep(), root.getChildAllocators().size()) == (0, 0)


def _root(spark: SparkSession) -> Any:
    jvm = spark._jvm
    assert jvm is not None
    return jvm.org.apache.iceberg.arrow.ArrowAllocation.rootAllocator()
