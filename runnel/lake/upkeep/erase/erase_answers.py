"""Erase stored answers of the service that may hold rows of any table: of queries, and of requests with a key.

Writes the catalog database only. Which rows an answer holds is not recorded, so all of them are erased.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.control import idempotency_keys, run_queue

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store


@dataclass(frozen=True)
class ErasedAnswers:
    """How many answers an erasure removed: of ended requests to workers, and of requests with an Idempotency-Key."""

    requests: int = 0
    keys: int = 0


def erase_answers(store: "Store", *, dry_run: bool) -> ErasedAnswers:
    """Erase all stored answers, and return how many; `dry_run` only counts them.

    The keys of requests stay, so that nothing is done twice.
    """

    def count(connection: "Connection") -> ErasedAnswers:
        return ErasedAnswers(run_queue.count_answers(connection), idempotency_keys.count_responses(connection))

    def delete(connection: "Connection") -> ErasedAnswers:
        if store.db.is_sqlite:  # otherwise deleted text stays in the file until its place is used again
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
        return ErasedAnswers(run_queue.delete_answers(connection), idempotency_keys.drop_responses(connection))

    return store.db.read(count) if dry_run else store.db.write(delete)
