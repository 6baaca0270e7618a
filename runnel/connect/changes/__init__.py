"""Changes: a table that follows from a log of them. No Spark: the log's files are read by DuckDB."""
