"""Tables of databases as sinks: PostgreSQL, SQLite, MySQL and MariaDB.

One module per database behind one writer.
"""
