"""What happens between planning and publishing, or while a clock is set back, loses nothing and brings nothing back."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from runnel.errors import VersionConflict
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.history.branches import fork_branch
from runnel.lake.history.commits import CommitChange, read_sequence
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.version_references import NewVersionAppeared, VersionSwap, read_references, swap_versions
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows

TABLE = TableName.parse("ods.orders")


def test_rows_erased_from_a_dropped_table_do_not_come_back(both: Store) -> None:
    """The erasure changes no head here, but a revert of the drop that was planned before it is planned again."""
    create(both, "ods.orders", rows((1, "d1", 5), (2, "d2", 7)))
    version = both.state()[TABLE].location
    publish(both.db, CommitDraft("main", "drop", "ada", (CommitChange(TABLE, version, None),)))
    planned = both.db.read(read_sequence)
    erase(both, TABLE, "id = 1")
    with pytest.raises(VersionConflict):
        publish(
            both.db,
            CommitDraft("main", "revert", "ada", (CommitChange(TABLE, None, version),), planned_sequence=planned),
        )


def test_a_fork_is_the_commit_and_not_what_another_engine_just_did(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    old = both.state()[TABLE].location
    head = add(both, "ods.orders", rows((2, "d2", 7)))
    moved = schema.iceberg_tables.update().values(metadata_location=old)
    both.db.write(lambda connection: connection.execute(moved))  # as another engine would, straight in the catalog
    fork_branch(both.db, "dev", head, "ada")
    assert both.commit("dev").id == head.id and len(read(both, "ods.orders", "dev")) == 2


def test_a_clock_that_is_set_back_does_not_sweep_an_open_write(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    base = both.state()[TABLE].location
    with acquire_pin(both.db, "write") as pin:
        ahead = format_time(datetime.now(UTC) + timedelta(seconds=300))
        late = schema.pins.update().where(schema.pins.c.id == pin).values(started_at=ahead)
        both.db.write(lambda connection: connection.execute(late))  # the pin was taken before the clock was set back
        files = parquet_writer.write_rows(
            both, table_metadata.load_metadata(both, base), rows((2, "d2", 7)).to_batches()
        )
        for _ in range(2):
            gc(both, Retention(grace="0s"))
        publish_edit(both, "main", TABLE, lambda _: VersionEdit(added=files), "late", pin=pin)
    assert len(read(both, "ods.orders")) == 2


def outside(store: Store, data: pa.Table) -> None:
    """Append as another engine does: straight in the catalog, knowing no lock or pin of ours."""
    uri = store.db.url.render_as_string(hide_password=False)
    SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table("ods.orders").append(data)


def test_another_engine_that_writes_while_rows_are_erased_loses_nothing(
    both: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(both, "ods.orders", rows((1, "d1", 5), (2, "d2", 7)))
    staged = Erasure.stage_versions
    rounds: list[int] = []

    def late(erasure: Erasure) -> None:
        staged(erasure)
        if not rounds:
            outside(both, rows((3, "d3", 8), (2, "d2", 9)))
        rounds.append(1)

    monkeypatch.setattr(Erasure, "stage_versions", late)  # the moment between looking and swapping
    erase(both, TABLE, "id = 2")
    assert len(rounds) == 2 and read(both, "ods.orders") == [(1, "d1", 5), (3, "d3", 8)]


def test_a_row_that_moves_between_reading_the_trail_and_the_swap_is_noticed(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    old = both.state()[TABLE].location
    found = both.db.read(lambda connection: read_references(connection, ["ods.orders"]))
    outside(both, rows((3, "d3", 8)))
    with pytest.raises(NewVersionAppeared):
        both.db.write(lambda connection: swap_versions(connection, found, VersionSwap({old: old + "x"}, {}, {})))
    assert read(both, "ods.orders") == [(1, "d1", 5), (3, "d3", 8)]
