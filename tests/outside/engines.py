"""The other engines over a test's lake: Spark and PyIceberg straight on its catalog, beside Runnel's own two."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog

from runnel.lake.commits import Commit
from runnel.lake.store import Store
from runnel.query.engine import query
from runnel.spark.catalog import CatalogSettings, catalog_conf
from runnel.spark.session import slot_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


class Engines:
    """A lake as Spark, PyIceberg and Runnel see it; Spark's own catalogs are the branches main and dev."""

    def __init__(self, store: Store, spark: "SparkSession") -> None:
        self.store = store
        self._spark = spark
        self.database = store.db.url.render_as_string(hide_password=False)
        self._session = slot_session(spark, CatalogSettings("main", self.database, store.warehouse))
        for key, value in catalog_conf("dev", self.database, store.warehouse).items():
            self._session.conf.set(key, value)

    def sql(self, *statements: str) -> None:
        """Let Spark do something straight to the catalog."""
        for statement in statements:
            self._session.sql(statement)

    def spark(self, table: str, branch: str = "main") -> Rows:
        """Return the rows that Spark reads."""
        return _sorted(row.asDict(recursive=True) for row in self._session.table(f"{branch}.{table}").collect())

    def pyiceberg(self, table: str, branch: str = "main") -> Rows:
        """Return the rows that PyIceberg reads."""
        return _sorted(self.catalog(branch).load_table(table).scan().to_arrow().to_pylist())

    def runnel(self, table: str, at: str = "main", engine: str = "auto") -> Rows:
        """Return the rows that Runnel shows."""
        sql = f"select * from {table}"
        return _sorted(query(self.store, sql, at=at, engine=engine, spark=lambda: self._spark).table().to_pylist())

    def agreed(self, table: str, branch: str = "main", *, duckdb: bool = True) -> Rows:
        """Return the rows of a table, having made sure that all engines see the same."""
        found = self.spark(table, branch)
        assert self.pyiceberg(table, branch) == found, "PyIceberg"
        assert self.runnel(table, branch, "spark") == found, "Runnel by Spark"
        assert self.runnel(table, branch, "duckdb" if duckdb else "auto") == found, "Runnel by DuckDB"
        return found

    def catalog(self, branch: str = "main") -> SqlCatalog:
        """Return PyIceberg's own catalog of a branch."""
        return SqlCatalog(branch, uri=f"{self.database}?timeout=30", warehouse=self.store.warehouse)

    def adopted(self, branch: str = "main") -> Commit:
        """Return the head of a branch, which must be what another engine did."""
        head = self.store.commit(branch)
        assert (head.kind, head.author) == ("adopt", "another engine")
        return head


def _sorted(rows: "Sequence[dict[str, Any]] | Any") -> Rows:
    return sorted((tuple(row.values()) for row in rows), key=repr)


Change = Callable[[Engines], None]
