"""An empty database of PostgreSQL for each test that reads one."""

from tests.connect.jdbc.source_databases import database  # noqa: F401
