"""Kafka that is read in work units: how ranges are divided, where it is done and why, and what is left behind."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runnel.connect.ingest.shared_scratch import SCRATCH_FOLDER, SharedScratch
from runnel.connect.kafka import message_units, offset_range
from runnel.connect.kafka.message_units import MessageFetcher, divide_ranges, prepare_source
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.secret import Secret
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.project.planning.plan_project import load_project_flow
from runnel.run.sources import continuous_ingest
from runnel.service.worker.loops.ingest_loop import IngestLoop
from runnel.service.worker.loops.loop_context import LoopContext
from tests.connect.kafka.kafka_project import IN_BOTH_PLACES, A, B, Clicks, open_clicks
from tests.lake.pickling_runner import PicklingRunner
from tests.servers.kafka import Server

CLICK = '{"type": "record", "name": "Click", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def clicks(request: pytest.FixtureRequest, kafka: Server, tmp_path: Path) -> Clicks:
    return open_clicks(request, kafka, tmp_path)


@pytest.fixture
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (offset_range, message_units):
        monkeypatch.setattr(module, "RANGE_OFFSETS", 4)
    yield


def list_scratch(clicks: Clicks) -> list[Path]:
    return [path for path in clicks.root.rglob("*") if SCRATCH_FOLDER in path.parts]


def test_no_unit_has_a_partition_twice(short_ranges: None) -> None:
    ranges = [OffsetRange("a", 0, 3, 5), OffsetRange("a", 1, 0, 11), OffsetRange("b", 0, 0, 1)]
    for parallel_units in (1, 3, 100):
        units = divide_ranges(ranges, parallel_units)
        for unit in units:
            assert len({span.partition_name for span in unit.ranges}) == len(unit.ranges)
        offsets = [(span.partition_name, offset) for unit in units for span in unit.ranges for offset in _list(span)]
        assert offsets == [(span.partition_name, offset) for span in ranges for offset in _list(span)]


def _list(span: OffsetRange) -> range:
    return range(span.start, span.end)


@IN_BOTH_PLACES
def test_a_long_range_has_several_files_in_both_places(clicks: Clicks, short_ranges: None) -> None:
    clicks.make(2)
    clicks.put(*[{"id": number} for number in range(10)])
    clicks.put(*[{"id": number} for number in range(10, 12)], partition=1)
    feed = clicks.feed()
    assert feed.ids() == [*range(12)]
    first, second = (f"{clicks.topic}[{partition}]" for partition in (0, 1))
    names = [f"{first} from 0 to 3", f"{first} from 4 to 7", f"{first} from 8 to 9", f"{second} from 0 to 1"]
    assert [part.name for part in feed.last.parts] == names
    raw = clicks.feed(format="raw")
    assert [row["offset"] for row in raw.read()] == [*range(10), 0, 1]
    assert [part.name for part in raw.last.parts] == names


@IN_BOTH_PLACES
def test_bad_messages_of_a_long_range_are_named_alike_in_both_places(clicks: Clicks, short_ranges: None) -> None:
    clicks.make(1)
    clicks.declare(on=', on_bad="quarantine"')
    clicks.put(*[{"id": "x"} if number % 3 == 0 else A for number in range(9)], None)
    ran = clicks.project.run()
    assert (ran.steps[0].rows, ran.steps[0].set_aside) == (6, 4)
    place = f"{clicks.topic}[0]"
    assert sorted(row[1].partition(":")[0] for row in clicks.project.rows("quarantine.ods_clicks")) == [
        f"{place} from 0 to 3, line 1, column `id`",
        f"{place} from 0 to 3, line 4, column `id`",
        f"{place} from 4 to 7, line 3, column `id`",
        f"{place}, offset 9",
    ]
    clicks.declare()
    clicks.put(*[None] * 30)
    error = clicks.fails()
    lines = error.what.splitlines()
    assert lines[0] == "many messages of ods.clicks can't be read; nothing was loaded"
    assert lines[1:] == [f"    {place}, offset {n}: it has no value: it is a tombstone" for n in range(10, 30)]


@pytest.mark.parametrize("clicks", ["units"], indirect=True)
@pytest.mark.parametrize("is_bad", [False, True], ids=["a run that succeeds", "a run that fails"])
def test_scratch_files_are_removed(clicks: Clicks, is_bad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A, {"id": "x"} if is_bad else B)
    fetched: list[list[Path]] = []
    original = message_units.MessageFetcher.__call__

    def fetch(self: MessageFetcher, unit: Any) -> Any:
        result = original(self, unit)
        fetched.append(list_scratch(clicks))
        return result

    monkeypatch.setattr(message_units.MessageFetcher, "__call__", fetch)
    assert bool(clicks.project.run().errors) == is_bad
    assert len([path for path in fetched[0] if path.suffix == ".jsonl"]) == 1
    assert list_scratch(clicks) == []


def test_gc_removes_what_a_killed_driver_left(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A)
    clicks.run()
    with clicks.project.open() as lake:
        left = Path(lake.store.warehouse.removeprefix("file://")) / SCRATCH_FOLDER / "run" / "ods.clicks-1" / "0.jsonl"
        left.parent.mkdir(parents=True)
        left.write_text("{}\n")
        for hours in (2, 4):
            gc(lake.store, Retention(), now=datetime.now(UTC) + timedelta(hours=hours))
    assert not left.exists() and clicks.rows() == [(1, "a")]


def test_units_carry_secrets_without_showing_them(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SECRET", "x4711")
    feed = clicks.feed(options={"sasl.password": Secret("KAFKA_SECRET")}, format="avro", avro="click.avsc")
    (clicks.root / "click.avsc").write_text(CLICK)
    source = prepare_source(feed.source, feed.origin, clicks.root)
    files = WarehouseFiles(str(clicks.root), {"s3.secret-access-key": "x4711"})
    fetcher = MessageFetcher(source, {}, SharedScratch(files, str(clicks.root / "scratch")))
    monkeypatch.delenv("KAFKA_SECRET")
    assert isinstance(source.origin, Kafka) and source.origin.avro == CLICK
    ((_, password),) = source.origin.options
    assert isinstance(password, Secret) and password.reveal() == "x4711"
    assert "x4711" not in repr(fetcher) and "secret(KAFKA_SECRET)" in repr(fetcher)


def test_the_plan_says_where_and_about_how_much(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(*[A] * 100)
    assert clicks.project.plan().notes == ()
    monkeypatch.setenv("RUNNEL__SPARK__MASTER", "spark://127.0.0.1:1")
    (note,) = clicks.project.plan().notes
    size = re.escape("are not more than spark.executors_from, 256.0 MiB")
    assert re.fullmatch(f"ods.clicks is read in this process: about 2.[0-9] KiB {size}", note)
    ran = clicks.project.run()
    assert ran.steps[0].place is not None and f"ods.clicks is read {ran.steps[0].place.describe()}" == note
    clicks.put(*[A] * 100)
    monkeypatch.setenv("RUNNEL__SPARK__EXECUTORS_FROM", "1 KiB")
    plan = clicks.project.plan()
    assert "is read on executors: about 2." in plan.notes[0] and plan.jvm


def test_a_continuous_source_chooses_the_place_for_each_batch(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.make(2)
    clicks.declare()
    clicks.put(A)
    monkeypatch.setattr(continuous_ingest, "MOST_ROWS", 60)
    with clicks.project.open() as lake:
        flow = load_project_flow(lake)
        (source,) = flow.sources.values()
        context = LoopContext(lake, flow, "main", "r1", print)
        monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", "process")
        lake_by_process = clicks.project.open()
        with lake_by_process:
            loop = IngestLoop(replace(context, lake=lake_by_process), source, None)
            assert loop.build_ingest().choose_runner(1 << 40).place.reason == 'spark.run_on is "process"'
        runner = PicklingRunner()
        ingest = IngestLoop(context, source, None).build_ingest()
        ingest.choose_runner = runner
        assert ingest.ingest_once() is not None
        clicks.put(*[A] * 50)
        clicks.put(*[A] * 50, partition=1)
        assert ingest.ingest_once() is not None and len(runner.chosen) == 2
        assert {type(unit).__name__ for unit in runner.all_units} == {"MessageUnit", "UnitGroup", "FileUnit"}
        assert ingest.ingest_once() is not None and ingest.ingest_once() is None
    assert clicks.rows() == [(1, "a")] * 101
    assert list_scratch(clicks) == []
