"""Random tasks with `by=` are refused, computed in full, or right when only some slices are computed; never wrong.

RUNNEL_ALIGNMENT_CASES=1000 tries more of them, RUNNEL_ALIGNMENT_SEED=n begins with another one.
"""

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.declare.model.flow import TaskOptions
from runnel.errors import Mistake
from runnel.lake.leases import slots
from runnel.lake.store import Store
from runnel.run.analysis.slice_alignment import SlicedInput, check_slice_alignment
from runnel.run.slices.keys import SliceKeys, restrict_to_slices
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.session import create_slot_session
from tests.lake.factories import create
from tests.run.equivalence.mutations import SWIFT
from tests.run.equivalence.random_tasks import Case, case
from tests.run.function_tasks import task_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark
NUMBER = int(os.environ.get("RUNNEL_ALIGNMENT_CASES") or 24)
FIRST = int(os.environ.get("RUNNEL_ALIGNMENT_SEED") or 0)
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
    ]
)
IDENTIFIER = "run_alignment_law_0.ods.rows"
VERDICTS = ("refused", "in full", "by slices")


def _task(orders: Any) -> Any:
    return orders


def _rows() -> list[dict[str, Any]]:
    """Return rows with few different values, nulls too, whose days have gaps."""
    chance = Random(7)
    found: list[dict[str, Any]] = []
    for _ in range(40):
        day = chance.choice((1, 2, 3, 5, 8, 9, 20, None))
        hour = chance.randrange(24)
        found.append(
            {
                "i": chance.choice((0, 1, 2, 3, 5, 9, None)),
                "j": chance.randrange(6),
                "s": chance.choice(("a", "ab", "b", "", None)),
                "d": None if day is None else dt.date(2026, 1, day),
                "ts": None if day is None else dt.datetime(2026, 1, day, hour, tzinfo=dt.UTC),
                "x": chance.choice((0.0, 1.5, None)),
            }
        )
    return found


@pytest.fixture(scope="module")
def rows(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[DataFrame]":
    folder = tmp_path_factory.mktemp("alignment_law")
    store = Store.open(f"sqlite:///{folder}/lake/catalog.db", f"{folder}/lake/warehouse")
    create(store, "ods.rows", pa.Table.from_pylist(_rows(), SCHEMA))
    taken = slots.acquire_slot(store.db, "alignment_law", 0, store.commit("main"), store.state("main"))
    address = store.db.url.render_as_string(hide_password=False)
    session = create_slot_session(spark, CatalogSettings(taken.name, address, store.warehouse))
    for name, value in (SWIFT | {"spark.sql.shuffle.partitions": "1"}).items():
        session.conf.set(name, value)
    assert taken.name == IDENTIFIER.partition(".")[0]
    yield session.table(IDENTIFIER)
    slots.release(store.db, taken)
    store.close()


def judged(rows: "DataFrame", given: Case) -> str:
    """Return the verdict on a case; raise where it is to be computed by slices and that is wrong."""
    from pyspark.errors import AnalysisException

    try:
        frame = _made(rows, given)
    except AnalysisException:
        return "no SQL"
    sliced = {IDENTIFIER: SlicedInput(rows, (given.expression,), given.lookback)}
    try:
        if check_slice_alignment(task_of(_task, TaskOptions(by=("z",))), frame, sliced) is not None:
            return "in full"
    except Mistake:
        return "refused"
    _refuse_wrong(rows, given, frame)
    return "by slices"


def _made(rows: "DataFrame", given: Case) -> "DataFrame":
    rows.createOrReplaceTempView("rows")
    return rows.sparkSession.sql(given.sql)


def _refuse_wrong(rows: "DataFrame", given: Case, whole: "DataFrame") -> None:
    """Compute two slices from their own rows, and hold them against those of the whole."""
    named = rows.selectExpr(f"({given.expression}) as z").distinct().orderBy("z")
    keys = SliceKeys(2, frame=named.offset(given.seed % 4).limit(2).localCheckpoint())
    some = _made(restrict_to_slices(rows, replace(keys, lookback=given.lookback), [given.expression]), given)
    expected, found = (Counter(map(repr, restrict_to_slices(one, keys, ["`z`"]).collect())) for one in (whole, some))
    assert found == expected, f"RUNNEL_ALIGNMENT_SEED={given.seed}\n{given}\n{found - expected}\n{expected - found}"


@pytest.mark.timeout(86400 if NUMBER > 100 else 600)
def test_random_tasks_are_refused_computed_in_full_or_right(rows: "DataFrame") -> None:
    verdicts = Counter(judged(rows, case(seed)) for seed in range(FIRST, FIRST + NUMBER))
    assert all(verdicts[verdict] > NUMBER / 20 for verdict in VERDICTS), verdicts
