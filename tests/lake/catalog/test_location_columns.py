"""No column of the catalog database that holds locations is forgotten, by whoever moves or keeps them."""

from pathlib import Path

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.catalog.location_columns import COLUMNS_WITHOUT_LOCATIONS, LOCATION_COLUMNS
from runnel.lake.control.schedules import ScheduleAdvance, advance, declare, list_schedules
from runnel.lake.flow_state import append_log, streams
from runnel.lake.iceberg import manifests
from runnel.lake.iceberg.manifests import read_listed_manifests
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases.slots import acquire_slot
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.upkeep.relocate.relocate import relocate
from runnel.names import TableName
from tests.lake.factories import add, create, rows

ORDERS, SUMS = TableName.parse("ods.orders"), TableName.parse("dws.sums")


def test_every_column_of_text_is_known_to_hold_locations_or_none() -> None:
    """Whoever adds a column says which, so that relocate, gc, fsck and erase know of it."""
    kinds = (sa.String, sa.LargeBinary)  # Text is a String
    found = {
        (table.name, column.name)
        for table in schema.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, kinds)
    }
    holding = [column.key for column in LOCATION_COLUMNS]
    others = [(table, column) for table, columns in COLUMNS_WITHOUT_LOCATIONS.items() for column in columns]
    assert sorted(found) == sorted([*holding, *others])
    assert len(set(holding)) == len(holding) and not set(holding) & set(others)


def furnish(store: Store) -> append_log.AppendLog:
    """Make a lake with a stream that has several snapshots to read, a slot, a sink and a schedule."""
    create(store, "ods.orders", rows((1, "d1", 5)))
    wound = append_log.create(store, ORDERS, *vars(store.state()[ORDERS]).values())
    for number in range(2, 5):
        add(store, "ods.orders", rows((number, "d1", 5)))
        wound = append_log.extend(store, ORDERS, wound, *vars(store.state()[ORDERS]).values())
    with streams.acquire_lease(store.db, "main", SUMS, "code") as held:
        assert held.update_append_logs({ORDERS: wound}, {})
    acquire_slot(store.db, "w", 1, store.commit(), store.state())
    version = store.state()[ORDERS]
    delivered = {"sink": "copy", "epoch": 0, "attempts": 0, "location": version.location, "content": version.content}
    store.db.write(lambda connection: connection.execute(schema.deliveries.insert().values(delivered)))
    declare(store.db, [{"name": "often"}])
    [schedule] = store.db.read(list_schedules)
    advance(store.db, [ScheduleAdvance(schedule, {"locations": {"ods.orders": version.location}})])
    return wound


def texts(store: Store) -> dict[tuple[str, str], list[str]]:
    """Return every text in the catalog database, by its column."""
    found: dict[tuple[str, str], list[str]] = {}
    with store.db.read_transaction() as connection:
        for table in schema.metadata.tables.values():
            for row in connection.execute(sa.select(table)):
                for name, value in row._mapping.items():
                    if isinstance(value, str):
                        found.setdefault((table.name, name), []).append(value)
    return found


def test_a_relocation_moves_the_locations_of_all_columns(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/a/catalog.db", f"{tmp_path}/a/warehouse")
    furnish(store)
    store.close()
    before = texts(store)
    store.close()
    (tmp_path / "a").rename(tmp_path / "b")
    moved = Store.open(f"sqlite:///{tmp_path}/b/catalog.db", f"{tmp_path}/b/warehouse", moved=True)
    relocate(moved)
    after = texts(moved)
    with_locations = {key for key, values in before.items() if any(str(tmp_path) in value for value in values)}
    assert {("runnel_streams", "tapes"), ("runnel_schedules", "cursor"), ("runnel_deliveries", "location")} < (
        with_locations
    )
    assert with_locations <= {column.key for column in LOCATION_COLUMNS}
    assert [key for key, values in after.items() if any(f"{tmp_path}/a/" in value for value in values)] == []
    assert fsck(moved, deep=True).is_clean
    assert_unread(moved)


def assert_unread(store: Store) -> None:
    """Check that what a stream has still to read of its tape can be read, one snapshot after the other."""
    manifests.clear_cache()
    [stream] = store.db.read(streams.list_streams).values()
    snapshots = load_metadata(store, stream.append_logs[ORDERS].location).snapshots
    assert len(snapshots) == 5
    for snapshot in snapshots:
        for manifest in read_listed_manifests(store, snapshot.manifest_list):
            assert Path(manifest.manifest_path).exists()
            for entry in manifest.fetch_manifest_entry(store.io):
                assert Path(entry.data_file.file_path).exists()


def test_gc_keeps_what_a_stream_has_still_to_read(store: Store) -> None:
    furnish(store)
    store.db.write(lambda connection: connection.execute(schema.slots.delete()))
    gc(store, Retention(commits="0 seconds", stream="0 seconds", failed="0 seconds", grace="0 seconds"))
    assert_unread(store)
    assert fsck(store, deep=True).is_clean
