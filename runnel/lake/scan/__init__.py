"""DuckDB over the data files of versions.

The one place of the lake that opens DuckDB.
"""
