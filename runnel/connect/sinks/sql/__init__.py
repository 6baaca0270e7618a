"""Tables of databases as sinks: PostgreSQL, SQLite, MySQL and MariaDB."""
