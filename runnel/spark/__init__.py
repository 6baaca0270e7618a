"""The JVM and its Spark session: found, started, watched and ended here and nowhere else."""

from runnel.spark.catalog import CatalogSettings, catalog_conf
from runnel.spark.session import SparkSettings, slot_session, start, stop

__all__ = ["CatalogSettings", "SparkSettings", "catalog_conf", "slot_session", "start", "stop"]
