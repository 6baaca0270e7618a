"""The named steps of ingest into a table at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

SOURCE_STAGED = declare("stream.taken", "what is new of a source is staged, nothing points at it")
