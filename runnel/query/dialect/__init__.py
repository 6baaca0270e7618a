"""Translate Spark SQL to DuckDB SQL: faithfully or not at all.

Pure: text and schemas in, text out.
"""
