"""What happens between planning and publishing, or while a clock is set back, loses nothing and brings nothing back."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from runnel.errors import Moved
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import stamp
from runnel.lake.history.branches import fork
from runnel.lake.history.commits import Change, sequence
from runnel.lake.iceberg import parquet_writer, table_metadata
from runnel.lake.leases.pins import pinned
from runnel.lake.publish import Draft, publish
from runnel.lake.store import Store
from runnel.lake.table_writer import append
from runnel.lake.upkeep.erase.erase import erase
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.upkeep.erase.version_references import Appeared, Swap, swap, trail
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows

TABLE = TableName.parse("ods.orders")


def test_rows_erased_from_a_dropped_table_do_not_come_back(both: Store) -> None:
    """The erasure changes no head here, but a revert of the drop that was planned before it is planned again."""
    create(both, "ods.orders", rows((1, "d1", 5), (2, "d2", 7)))
    version = both.state()[TABLE].location
    publish(both.db, Draft("main", "drop", "ada", (Change(TABLE, version, None),)))
    planned = both.db.read(sequence)
    erase(both, TABLE, "id = 1")
    with pytest.raises(Moved):
        publish(both.db, Draft("main", "revert", "ada", (Change(TABLE, None, version),), planned=planned))


def test_a_fork_is_the_commit_and_not_what_another_engine_just_did(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    old = both.state()[TABLE].location
    head = add(both, "ods.orders", rows((2, "d2", 7)))
    moved = schema.iceberg_tables.update().values(metadata_location=old)
    both.db.write(lambda connection: connection.execute(moved))  # as another engine would, straight in the catalog
    fork(both.db, "dev", head, "ada")
    assert both.commit("dev").id == head.id and len(read(both, "ods.orders", "dev")) == 2


def test_a_clock_that_is_set_back_does_not_sweep_an_open_write(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    base = both.state()[TABLE].location
    with pinned(both.db, "write") as pin:
        ahead = stamp(datetime.now(UTC) + timedelta(seconds=300))
        late = schema.pins.update().where(schema.pins.c.id == pin).values(started_at=ahead)
        both.db.write(lambda connection: connection.execute(late))  # the pin was taken before the clock was set back
        files = parquet_writer.write_rows(
            both, table_metadata.load(both, base), parquet_writer.batches_of(rows((2, "d2", 7)))
        )
        for _ in range(2):
            gc(both, Retention(grace="0s"))
        append(both, "main", TABLE, files, "late", base=base, pin=pin)
    assert len(read(both, "ods.orders")) == 2


def outside(store: Store, data: pa.Table) -> None:
    """Append as another engine does: straight in the catalog, knowing no lock or pin of ours."""
    uri = store.db.url.render_as_string(hide_password=False)
    SqlCatalog("main", uri=uri, warehouse=store.warehouse).load_table("ods.orders").append(data)


def test_another_engine_that_writes_while_rows_are_erased_loses_nothing(
    both: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(both, "ods.orders", rows((1, "d1", 5), (2, "d2", 7)))
    staged = Erasure.stage
    rounds: list[int] = []

    def late(erasure: Erasure) -> None:
        staged(erasure)
        if not rounds:
            outside(both, rows((3, "d3", 8), (2, "d2", 9)))
        rounds.append(1)

    monkeypatch.setattr(Erasure, "stage", late)  # the moment between looking and swapping
    erase(both, TABLE, "id = 2")
    assert len(rounds) == 2 and read(both, "ods.orders") == [(1, "d1", 5), (3, "d3", 8)]


def test_a_row_that_moves_between_reading_the_trail_and_the_swap_is_noticed(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    old = both.state()[TABLE].location
    found = both.db.read(lambda connection: trail(connection, ["ods.orders"]))
    outside(both, rows((3, "d3", 8)))
    with pytest.raises(Appeared):
        both.db.write(lambda connection: swap(connection, found, Swap({old: old + "x"}, {}, {})))
    assert read(both, "ods.orders") == [(1, "d1", 5), (3, "d3", 8)]
