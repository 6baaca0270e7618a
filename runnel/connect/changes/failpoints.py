"""The named steps of applying changes at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

APPLIED = declare("changes.applied", "the rows of a table that follows from a log are written, no version lists them")
STAGED = declare("changes.staged", "the version of a table that follows from a log is staged, nothing points at it")
