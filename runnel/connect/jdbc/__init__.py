"""SQL databases as sources: PostgreSQL, MySQL, MariaDB and SQLite.

May import `connect.feed` and `connect.ingest`.
"""
