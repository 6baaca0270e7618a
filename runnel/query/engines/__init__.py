"""The two engines behind a query: DuckDB in this process, Spark in its session.

Neither knows the other.
"""
