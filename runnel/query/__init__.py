"""Questions to the lake: Spark SQL, answered by DuckDB or by Spark."""
