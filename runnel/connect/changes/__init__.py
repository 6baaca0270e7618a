"""Apply a log of changes to the table that follows from it (`rn.changes`).

No Spark: DuckDB reads the log's files.
"""
