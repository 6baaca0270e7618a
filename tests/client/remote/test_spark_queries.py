"""Queries that only Spark can answer, by a worker of the service: exact types, any size, and really stopped."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.errors import Unreachable
from runnel.service.worker.worker import Worker
from tests.client.remote.conftest import Pair
from tests.service.api.api_server import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def worker(pair: Pair, spark: "SparkSession") -> Iterator[Worker]:
    pair.local.spark_provider.replace(spark)
    with working(pair.api) as worker:
        yield worker


def holds(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds, and tell whether it does."""
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


def test_types_are_exact(pair: Pair, worker: Worker) -> None:
    sql = """select initcap('ab cd') as x, map('a', cast(1.5 as decimal(9,2))) as m, unhex('00ff') as b, null as v,
             named_struct('t', timestamp '2026-01-02 03:04:05.678901', 'a', array(1L, null)) as s"""
    far, near = pair.remote.query(sql), pair.local.query(sql)
    assert (far.engine, far.at, far.reason) == ("spark", near.at, near.reason)
    assert far.schema.equals(near.schema, check_metadata=True) and far.table().equals(near.table())
    many = pair.remote.query("select explode(sequence(1, 25000)) as n", engine="spark")
    assert many.table().num_rows == 25_000, "more than JSON would have"
    answers = Path(pair.local.settings.warehouse) / "_answers"
    assert holds(lambda: not any(path.is_file() for path in answers.rglob("*"))), "what was sent is removed"


def test_what_takes_too_long_is_stopped(pair: Pair, worker: Worker) -> None:
    pair.remote.query("select 1 as x", engine="spark").close()  # Spark is warm
    pair.local.settings = replace(pair.local.settings, query_timeout_seconds=2)
    ones = "(select explode(sequence(1, 100000)) as {})"
    sql = f"select count(*) as n from {ones.format('a')} x, {ones.format('b')} y where a * b % 7 = 3"
    with pytest.raises(Unreachable) as error:
        pair.remote.query(sql, engine="spark")
    assert error.value.code == "WORKER_SLOW"
    assert holds(lambda: worker.active_run_ids == []) and not worker.has_stuck_run
    assert pair.remote.query("select 2 as x", engine="spark").rows() == [(2,)]
