"""The slot with sliced tables that tests of slice alignment share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from runnel.lake.leases import slots
from runnel.lake.store import Store
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session
from tests.lake.factories import create
from tests.run.analysis.sliced_tables import TABLES, Slot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def slot(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    folder = tmp_path_factory.mktemp("alignment")
    store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
    for name, (schema, rows) in TABLES.items():
        made = [dict(zip(schema.names, row, strict=True)) for row in rows]
        create(store, f"ods.{name}", pa.Table.from_pylist(made, schema))
    taken = slots.acquire_slot(store.db, "alignment", 0, store.commit("main"), store.state("main"))
    address = store.db.url.render_as_string(hide_password=False)
    session = create_slot_session(spark, CatalogSettings(taken.name, address, store.warehouse))
    frames = {name: session.table(f"{taken.name}.ods.{name}") for name in TABLES}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    yield Slot(taken.name, session, **frames)
    slots.release(store.db, taken)
    store.close()
