"""The one lock of a lake: whoever changes its history holds it until the transaction ends."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema


def lock_lake(connection: Connection) -> None:
    """Lock the lake for writing until the transaction ends.

    SQLite's transaction has it from its beginning; PostgreSQL locks the lake's row.
    """
    connection.execute(sa.select(schema.lake.c.seq).with_for_update()).scalar_one()
