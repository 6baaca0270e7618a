"""Databases over SQL: PostgreSQL, MySQL, MariaDB and SQLite."""
