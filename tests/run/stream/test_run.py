"""`runnel run` lets streams take what is there: each row once, from where they were."""

from collections.abc import Callable

import pytest

from tests.cli import conftest as commands
from tests.run.stream.click_files import Clicks

pytestmark = pytest.mark.cluster

cli = commands.cli

KEPT = """
@rn.task("dwd.views", stream="clicks")
def views(clicks):
    return clicks.where("page <> '/health'").select("id", "page", "ts")
"""
COUNTED = """
@rn.task("dws.page", stream="clicks", output="update", key="page")
def page(clicks):
    return clicks.groupBy("page").count()
"""
FOLLOWED = """
@rn.task("ads.pages")
def pages(views):
    return views.groupBy("page").count()
"""


def ids(clicks: Clicks, table: str = "dwd.views") -> list[int]:
    return sorted(row[0] for row in clicks.rows(table))


def test_rows_are_taken_as_they_come(clicks: Clicks, cli: Callable[..., commands.Done]) -> None:
    clicks.streams(KEPT)
    clicks.click((1, "/a", "ada", "10:00:00"), (2, "/health", "bot", "10:00:01"))
    assert clicks.ran() == {"ods.clicks": "ingest", "dwd.views": "stream"}
    assert ids(clicks) == [1]
    assert clicks.ran() == {}
    clicks.click((3, "/b", "bob", "10:00:02"))
    clicks.click((4, "/b", "bob", "10:00:03"))
    assert clicks.ran() == {"ods.clicks": "ingest", "dwd.views": "stream"}
    assert ids(clicks) == [1, 3, 4]
    why = cli("why", "dwd.views").out
    assert "made by    task views, flows/flow.py:6" in why and "ods.clicks  4 rows, commit" in why
    assert "how        stream: batch 1, on the rows of the batches before it" in why and "?" not in why
    body = cli("why", "dwd.views", "--json").json
    assert (body["task"], body["place"], body["action"]) == ("views", "flows/flow.py:6", "stream")


def test_an_aggregate_goes_on_from_what_it_remembers(clicks: Clicks) -> None:
    clicks.streams(COUNTED)
    clicks.click((1, "/a", "ada", "10:00:00"), (2, "/b", "bob", "10:00:01"))
    clicks.ran()
    clicks.click((3, "/b", "bob", "10:00:02"))
    clicks.ran()
    assert clicks.rows("dws.page") == [("/a", 1), ("/b", 2)]


def test_what_reads_a_stream_follows(clicks: Clicks) -> None:
    clicks.streams(KEPT + FOLLOWED)
    clicks.click((1, "/a", "ada", "10:00:00"))
    assert clicks.ran() == {"ods.clicks": "ingest", "dwd.views": "stream", "ads.pages": "full"}
    clicks.click((2, "/a", "ada", "10:00:02"))
    clicks.ran()
    assert clicks.rows("ads.pages") == [("/a", 2)]
