"""The named steps of a stream's batch at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

WOUND = declare("stream.wound", "a tape reaches further, the stream does not see it yet")
BEGUN = declare("stream.begun", "Spark has handed a batch over, nothing of it is written")
WRITTEN = declare("stream.written", "the rows of a batch are written, nothing points at them")
PUBLISHED = declare("stream.published", "a batch is published, Spark does not know that it is done")
ALL = (WOUND, BEGUN, WRITTEN, PUBLISHED)
