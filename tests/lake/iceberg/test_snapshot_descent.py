"""What a run publishes descends from its base by snapshots of that run only."""

import pytest

from runnel.errors import RunnelError
from runnel.lake.iceberg import parquet_writer, snapshots, table_metadata
from runnel.lake.iceberg.snapshot_descent import check_descent
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import create, iceberg_schema, rows

ORDERS = TableName("ods", "orders")


def grown(store: Store, location: str, *runs: str | None) -> str:
    """Append a snapshot for each run; None is another engine's."""
    for run in runs:
        data = parquet_writer.write_rows(
            store, table_metadata.load_metadata(store, location), rows((1, "d1", 5)).to_batches()
        )
        summary = {"runnel.run": run} if run else {}
        location = snapshots.stage_version(store, location, VersionEdit(added=data, summary=summary))
    return location


CASES: dict[str, tuple[tuple[str | None, ...], tuple[str | None, ...], str | None]] = {
    # who wrote the base, who wrote since, what is told
    "own snapshots": (("r0",), ("r1", "r1"), None),
    "nothing written": (("r0",), (), None),
    "into an empty table": ((), ("r1",), None),
    "a straggler": (("r0",), ("r1", "r0"), "was written by r0"),
    "a straggler in between": (("r0",), ("r0", "r1"), "was written by r0"),
    "another engine": (("r0",), (None,), "another engine"),
    "so many that they are cut": (("r0",), ("r1",) * 12, "does not descend"),
}


@pytest.mark.parametrize(("before", "after", "told"), CASES.values(), ids=CASES)
def test_descent(store: Store, before: tuple[str | None, ...], after: tuple[str | None, ...], told: str | None) -> None:
    empty, _ = table_metadata.create_table(store, ORDERS, iceberg_schema(rows().schema))
    base = grown(store, empty, *before)
    written = grown(store, base, *after)
    if told is None:
        check_descent(store, base, written, "r1")
        return
    with pytest.raises(RunnelError, match=rf"PUBLISH_FOREIGN_WRITE: the table in .*ods/orders.*{told}"):
        check_descent(store, base, written, "r1")


def test_a_table_that_the_run_created(store: Store) -> None:
    empty, _ = table_metadata.create_table(store, ORDERS, iceberg_schema(rows().schema))
    check_descent(store, None, empty, "r1")
    check_descent(store, None, grown(store, empty, *["r1"] * 12), "r1")
    with pytest.raises(RunnelError, match="PUBLISH_FOREIGN_WRITE"):
        check_descent(store, None, grown(store, empty, "r1", None), "r1")


def test_another_table_in_its_place(store: Store) -> None:
    """One that starts anew must be the run's; an empty one says nothing about who emptied it."""
    create(store, "ods.orders", rows((1, "d1", 5)))
    base = store.state()[ORDERS].location
    empty, _ = table_metadata.create_table(store, ORDERS, iceberg_schema(rows().schema))
    check_descent(store, base, grown(store, empty, "r1"), "r1")
    for foreign in (empty, grown(store, empty, "r0")):
        with pytest.raises(RunnelError, match="PUBLISH_FOREIGN_WRITE"):
            check_descent(store, base, foreign, "r1")
