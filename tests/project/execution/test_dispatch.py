"""Where a run goes: to the service of the project over HTTP, to a worker through the queue, or to this process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.errors import Conflict
from runnel.lake.control import run_queue
from runnel.lake.control.queue_entry import QueueEntry
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.project import instance_file
from runnel.project.execution.dispatch import dispatch_backfill, dispatch_run, retry_run
from runnel.project.execution.follow_run import submit_request
from runnel.project.instance_file import ServiceInstance
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import Worker
from tests.service.api.api_server import serving

FLOW = """
import runnel as rn
rn.source("ods.orders", rn.files("*.csv", schema="id long"))
"""
ORDERS = RunRequest(("ods.orders",))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/flow.py").write_text(FLOW)
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "a.csv").write_text("id\n1\n")
    with rn.open(tmp_path) as lake:
        yield lake


@contextmanager
def working(lake: Lake) -> Iterator[Worker]:
    worker = Worker(lake, FlowCache(lake, os.environ), name="w1", parallel=1)
    worker.start()
    try:
        yield worker
    finally:
        worker.end()


@contextmanager
def being_up(lake: Lake) -> Iterator[None]:
    """Serve a lake and announce the service in the project's folder, as `runnel up` does, with a worker."""
    home = lake.settings.home
    with serving(lake) as api, working(lake):
        instance_file.save_token(home, api.secret)
        instance = ServiceInstance(os.getpid(), api.url, "", instance_file.hash_catalog_url(lake.settings.catalog))
        with instance_file.announce_instance(home, instance):
            yield


def entries(lake: Lake) -> list[QueueEntry]:
    return lake.store.db.read(lambda connection: run_queue.list_entries(connection))


def test_without_a_worker_this_process_computes(lake: Lake) -> None:
    assert dispatch_run(lake, ORDERS).state == "succeeded"
    assert entries(lake) == []
    assert dispatch_backfill(lake, replace(ORDERS, days=DateRange(date(2026, 1, 1), date(2026, 1, 2))), 1) is None


def test_a_worker_computes_from_the_queue(lake: Lake) -> None:
    with working(lake):
        done = dispatch_run(lake, ORDERS)
        assert [(entry.run, entry.slot) for entry in entries(lake)] == [(done.run, None)]
        assert dispatch_run(lake, ORDERS, local=True).state == "nothing"
        assert len(entries(lake)) == 1
    backfill = replace(ORDERS, days=DateRange(date(2026, 1, 1), date(2026, 1, 2)))
    with working(lake):
        assert dispatch_backfill(lake, backfill, 1) is not None
    assert len(entries(lake)) == 3


def test_the_service_queues_over_http(lake: Lake) -> None:
    with being_up(lake):
        done = dispatch_run(lake, ORDERS)
    (entry,) = entries(lake)
    assert (entry.run, entry.request, done.state) == (done.run, ORDERS, "succeeded")
    assert str(entry.slot).startswith("request/")


def test_a_retry_goes_the_same_ways_and_changes_nothing_of_the_request(lake: Lake) -> None:
    requests = [ORDERS, replace(ORDERS, reads_sources=False)]  # REST can't express the second one
    queued_ids = [submit_request(lake, request) for request in requests]
    with pytest.raises(Conflict, match="is still queued"):
        retry_run(lake, queued_ids[0])
    for queued_id in queued_ids:
        run_queue.cancel(lake.store.db, queued_id)
    with being_up(lake):
        for queued_id in queued_ids:
            retry_run(lake, queued_id)
    retried = [entry for entry in entries(lake) if entry.id not in queued_ids]
    retried.sort(key=lambda entry: entry.queued_at)
    assert [entry.request for entry in retried] == requests
    assert [entry.slot is None for entry in retried] == [False, True]
