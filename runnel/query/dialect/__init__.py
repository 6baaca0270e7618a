"""Spark SQL in, DuckDB SQL out: faithful, or not at all."""
