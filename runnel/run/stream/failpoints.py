"""Declare the failpoints of streams and continuous ingest at which a test may crash them."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

LOGS_EXTENDED = declare("stream.wound", "a tape reaches further, the stream does not see it yet")
BATCH_STARTED = declare("stream.begun", "Spark has handed a batch over, nothing of it is written")
BATCH_WRITTEN = declare("stream.written", "the rows of a batch are written, nothing points at them")
BATCH_PUBLISHED = declare("stream.published", "a batch is published, Spark does not know that it is done")
ALL = (LOGS_EXTENDED, BATCH_STARTED, BATCH_WRITTEN, BATCH_PUBLISHED)
