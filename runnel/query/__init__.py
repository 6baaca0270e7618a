"""Queries of the lake: Spark SQL, answered by DuckDB or by Spark.

No pyspark here: `query.engines` reaches Spark through the session it is given.
"""
