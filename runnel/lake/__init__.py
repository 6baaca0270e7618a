"""The versioned lake: the store and the one publish transaction over all tables.

All Iceberg metadata and the catalog database; no Spark.
"""
