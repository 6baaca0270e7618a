"""What must hold after any crash."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

from runnel.errors import RunnelError
from runnel.lake.catalog import schema
from runnel.lake.history.commits import Commit, find_commit, read_history
from runnel.lake.iceberg import table_metadata
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from tests.faults.workload import LEFT, RIGHT, Place


def verify(place: Place) -> None:
    """Check that nothing acknowledged is lost, nothing is torn, and the lake is sound; then that it still works."""
    store = place.open()
    report = fsck(store)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert not errors, errors
    lost = [name for name in place.acknowledged() if store.db.read(lambda c, name=name: find_commit(c, name)) is None]
    assert not lost, f"acknowledged and lost: {lost}"
    sequences = store.db.read(lambda c: list(c.execute(sa.select(schema.commits.c.seq)).scalars()))
    assert len(sequences) == len(set(sequences))
    for commit in recent(store):
        with suppress(Expired), reading(store, commit):
            assert_whole(store, commit)
    store.close()


class Expired(Exception):
    """The commit's retention has ended."""


@contextmanager
def reading(store: Store, commit: Commit) -> Iterator[None]:
    """Pin a commit while it is read: the other processes sweep without any grace."""
    try:
        pin = acquire_pin(store.db, "read", commit.id)
        pin.__enter__()
    except RunnelError as error:
        raise Expired from error
    try:
        yield
    finally:
        pin.__exit__(None, None, None)


def recent(store: Store, most: int = 20) -> list[Commit]:
    head = store.commit("main")
    return store.db.read(lambda connection: read_history(connection, head, limit=most))


def assert_whole(store: Store, commit: Commit) -> None:
    """The two tables of a pair have the same rows at every commit: nobody saw half of one."""
    state = store.state(commit)
    if LEFT not in state or RIGHT not in state:
        assert LEFT not in state or commit.message == f"create {LEFT}", commit
        return
    left, right = (_sum(store, state[name].location) for name in (LEFT, RIGHT))
    assert left == right, f"torn at {commit.id}: {left} {right}"


def _sum(store: Store, location: str) -> tuple[int, int]:
    sql = rows_sql(store, table_metadata.load_metadata(store, location))
    found = connect_duckdb().execute(f"select count(*), coalesce(sum(id), 0) from ({sql})").fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def watch(place: Place, failures: str) -> None:
    """Read both tables of the moving branch for ever, and note whatever is torn or unreadable."""
    store = place.open()
    while True:
        commit = store.commit("main")
        try:
            with suppress(Expired), reading(store, commit):
                assert_whole(store, commit)
        except (RunnelError, AssertionError) as error:
            with open(failures, "a") as log:  # noqa: PTH123
                log.write(f"{error}\n")
