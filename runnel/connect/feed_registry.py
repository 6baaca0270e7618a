"""Open the feed of a source. Each kind of feed is imported only when it is needed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import Feed
from runnel.declare.model.endpoints import Changes, Files, Function, Http, Jdbc, Kafka, Manual, Push
from runnel.declare.model.flow import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.flow_state.inbox_level import InboxLevelReader
    from runnel.lake.store import Store


def open_feed(
    source: Source,
    root: Path,
    levels: "InboxLevelReader | None" = None,
    *,
    spark: Callable[[], "SparkSession"] | None = None,
    store: "Store | None" = None,
) -> Feed | None:
    """Return the feed of a source; None for files, changes and tables that users fill.

    `levels` tells the level of inboxes; if `store` is given, its inboxes are used instead. Only a run passes `store`,
    to read pushed events, and `spark`, which returns a session for a function that needs one.
    """
    origin = source.origin
    if isinstance(origin, Files | Manual | Changes):
        return None
    if isinstance(origin, Jdbc):
        from runnel.connect.jdbc.feed import JdbcFeed

        return JdbcFeed(source, origin, root)
    if isinstance(origin, Kafka):
        from runnel.connect.kafka.feed import KafkaFeed

        return KafkaFeed(source, origin, root)
    if isinstance(origin, Http):
        from runnel.connect.http.feed import HttpFeed

        return HttpFeed(source, origin)
    if isinstance(origin, Push):
        return _open_push_feed(source, origin, levels, store)
    assert isinstance(origin, Function)
    from runnel.connect.feed.function_feed import FunctionFeed

    return FunctionFeed(source, origin, spark)


def _open_push_feed(source: Source, origin: Push, levels: "InboxLevelReader | None", store: "Store | None") -> Feed:
    from runnel.connect.feed.push_feed import PushFeed

    if store is None:
        assert levels is not None
        return PushFeed(source, origin, levels)
    from runnel.lake.flow_state.inbox_reader import InboxReader

    inbox = InboxReader(store.db)
    return PushFeed(source, origin, inbox, inbox)
