"""Find the feed of a source. Each kind imports what it needs only when it is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.news import Feed
from runnel.declare.flow import Source
from runnel.declare.origin import Changes, Files, Function, Http, Jdbc, Kafka, Manual

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def feed_of(source: Source, root: Path, spark: Callable[[], "SparkSession"] | None = None) -> Feed | None:
    """Return the feed of a source; None for one of files, or that people fill.

    `spark` returns a session, for a function that asks for one; only a run has it.
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
    assert isinstance(origin, Function)
    from runnel.connect.function import FunctionFeed

    return FunctionFeed(source, origin, spark)
