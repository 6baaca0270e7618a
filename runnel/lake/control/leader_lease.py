"""Elect one process at a time for a duty, such as running the streams of a branch.

The holder renews its lease. Another process takes over if, by its own monotonic clock, the lease was not renewed for a
while.
"""

import secrets
import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control.run_claims import CLAIM_SECONDS
from runnel.lake.leases.expiry import is_lease_owner_dead
from runnel.lake.leases.pins import current_lease_owner


class LeaderLease:
    """One named lease, as seen by one process. Not thread-safe."""

    def __init__(self, db: Database, name: str, monotonic_clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._name = name
        self._monotonic_clock = monotonic_clock
        self._token = secrets.token_hex(16)
        self._last_holder: tuple[str, str] | None = None  # token and renewal time of the last holder seen
        self._last_holder_since = 0.0

    def acquire(self) -> bool:
        """Acquire or renew the lease, and tell whether this process holds it now."""
        return self._db.write(self._acquire_in_transaction)

    def release(self) -> None:
        """Release the lease, so that another process can acquire it at once."""
        columns = schema.leases.c
        is_ours = sa.and_(columns.name == self._name, columns.token == self._token)
        self._db.write(lambda connection: connection.execute(schema.leases.delete().where(is_ours)))

    def _acquire_in_transaction(self, connection: Connection) -> bool:
        columns = schema.leases.c
        is_lease = columns.name == self._name
        row = connection.execute(sa.select(schema.leases).where(is_lease).with_for_update()).first()
        values = {"owner": current_lease_owner(), "token": self._token, "renewed_at": self._db.now(connection)}
        if row is None:
            connection.execute(schema.leases.insert().values(name=self._name, **values))
            return True
        if row.token != self._token and not self._is_expired(row.token, row.renewed_at, row.owner):
            return False
        connection.execute(schema.leases.update().where(is_lease).values(values))
        return True

    def _is_expired(self, token: str, renewed_at: str, holder: str) -> bool:
        if self._db.is_sqlite and is_lease_owner_dead(holder):
            return True
        if self._last_holder != (token, renewed_at):
            self._last_holder, self._last_holder_since = (token, renewed_at), self._monotonic_clock()
        return self._monotonic_clock() - self._last_holder_since > CLAIM_SECONDS
