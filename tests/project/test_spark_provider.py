"""The Spark session of a lake: started on first use, shared with another lake, dropped once it has ended."""

from pathlib import Path
from typing import Any

import pytest

from runnel.client.lake import Lake
from runnel.declare.settings import load_settings
from runnel.project.spark_provider import SparkProvider
from tests.run.project import Project


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    Project(tmp_path)
    return Lake(load_settings(tmp_path))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each start was brief; no JVM is started."""
    brief_starts: list[bool] = []

    def start(settings: object, report: object, *, brief: bool, user: object) -> Any:
        brief_starts.append(brief)
        return object()

    monkeypatch.setattr("runnel.project.spark_session.open_spark_session", start)
    return brief_starts


def test_it_starts_once_and_only_when_it_is_needed(lake: Lake, starts: list[bool]) -> None:
    assert lake.spark_provider.session is None and starts == []
    session = lake.spark
    assert session is lake.spark and session is lake.spark_provider.get(brief=True)
    assert lake.spark_provider.session is session and starts == [False]


def test_it_starts_again_after_it_was_dropped(lake: Lake, starts: list[bool]) -> None:
    assert not lake.spark_provider.drop()
    session = lake.spark
    assert lake.spark_provider.drop() and lake.spark_provider.session is None
    assert lake.spark_provider.get(brief=True) is not session and starts == [False, True]


def test_a_session_can_be_shared(lake: Lake, starts: list[bool]) -> None:
    session: Any = object()
    lake.spark_provider.replace(session)
    assert lake.spark is session and starts == []


def test_a_lake_uses_what_it_is_given(lake: Lake, starts: list[bool]) -> None:
    provider = SparkProvider(lake.settings, once=True)
    with Lake(lake.settings, store=lake.store, spark_provider=provider) as other:
        assert other.store is lake.store and other.spark is provider.session and provider.once
    assert not lake.spark_provider.once
