"""The other engines over a test's lake: Spark and PyIceberg straight on its catalog, beside Runnel's own."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog

from runnel.lake.history.commits import Commit
from runnel.lake.store import Store
from runnel.query.engine import run_query
from runnel.spark.catalog_conf import CatalogSettings, build_catalog_conf
from runnel.spark.session import create_slot_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


class Engines:
    """A lake as Spark, PyIceberg and Runnel see it; Spark's catalogs are the branches main, the default, and dev."""

    def __init__(self, store: Store, spark: "SparkSession") -> None:
        self.store = store
        self._spark = spark
        self._database = store.db.url.render_as_string(hide_password=False)
        self._session = create_slot_session(spark, CatalogSettings("main", self._database, store.warehouse))
        for key, value in build_catalog_conf("dev", self._database, store.warehouse).items():
            self._session.conf.set(key, value)

    def over(self, store: Store) -> "Engines":
        """Return the engines over another lake."""
        return Engines(store, self._spark)

    def sql(self, *statements: str) -> None:
        """Let Spark do something straight to the catalog."""
        for statement in statements:
            self._session.sql(statement)

    def spark(self, table: str, branch: str = "main") -> Rows:
        """Return the rows that Spark reads."""
        return ordered(self._session.table(f"{branch}.{table}").toArrow().to_pylist())

    def pyiceberg(self, table: str, branch: str = "main") -> Rows:
        """Return the rows that PyIceberg reads."""
        catalog = SqlCatalog(branch, uri=f"{self._database}?timeout=30", warehouse=self.store.warehouse)
        return ordered(catalog.load_table(table).scan().to_arrow().to_pylist())

    def runnel(self, table: str, at: str = "main", engine: str = "duckdb", where: str = "true") -> Rows:
        """Return the rows that Runnel shows."""
        sql = f"select * from {table} where {where}"
        return ordered(run_query(self.store, sql, at=at, engine=engine, spark=lambda: self._spark).table().to_pylist())

    def agreed(self, table: str, branch: str = "main", *, engine: str = "duckdb") -> Rows:
        """Return the rows of a table, having made sure that Spark, PyIceberg and Runnel see the same."""
        found = self.runnel(table, branch, engine)
        assert self.spark(table, branch) == found, "Spark"
        assert self.pyiceberg(table, branch) == found, "PyIceberg"
        return found

    def adopted(self, branch: str = "main") -> Commit:
        """Return the head of a branch, which must be the work of another engine."""
        head = self.store.commit(branch)
        assert (head.kind, head.author) == ("adopt", "another engine")
        return head


def ordered(rows: Iterable[dict[str, Any]]) -> Rows:
    """Return rows as tuples in one order, whoever read them."""
    return sorted((tuple(row.values()) for row in rows), key=repr)
