"""Rules for Spark's functions in DuckDB, one per function.

Each rule returns an equal expression or hands the query to Spark.
"""
