"""What only one process at a time may do, such as keeping the streams of a branch going.

Whose turn it is renews it. Another takes over when it has seen nobody renew it for a while by a clock that never jumps.
"""

import secrets
import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control.run_queue import CLAIM_SECONDS
from runnel.lake.leases.expiry import is_dead
from runnel.lake.leases.pins import owner


class Turn:
    """One name, as one process sees it. Not for several threads."""

    def __init__(self, db: Database, name: str, tick: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._name = name
        self._tick = tick
        self._token = secrets.token_hex(16)
        self._seen: tuple[str, str] | None = None  # whose it was when last looked at, and renewed when
        self._since = 0.0

    def take(self) -> bool:
        """Take or renew the turn, and tell whether it is ours now."""
        return self._db.write(self._take)

    def leave(self) -> None:
        """Let others have it at once."""
        columns = schema.leases.c
        mine = sa.and_(columns.name == self._name, columns.token == self._token)
        self._db.write(lambda connection: connection.execute(schema.leases.delete().where(mine)))

    def _take(self, connection: Connection) -> bool:
        columns = schema.leases.c
        here = columns.name == self._name
        row = connection.execute(sa.select(schema.leases).where(here).with_for_update()).first()
        values = {"owner": owner(), "token": self._token, "renewed_at": self._db.now(connection)}
        if row is None:
            connection.execute(schema.leases.insert().values(name=self._name, **values))
            return True
        if row.token != self._token and not self._is_over(row.token, row.renewed_at, row.owner):
            return False
        connection.execute(schema.leases.update().where(here).values(values))
        return True

    def _is_over(self, token: str, renewed_at: str, holder: str) -> bool:
        if self._db.is_sqlite and is_dead(holder):
            return True
        if self._seen != (token, renewed_at):
            self._seen, self._since = (token, renewed_at), self._tick()
        return self._tick() - self._since > CLAIM_SECONDS
