"""The named steps of an ingest at which a test may crash it, or change a file under it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

READ = declare("ingest.read", "the data files of a source's files are written, the files are not yet looked at again")
STAGED = declare("ingest.staged", "a source's version is staged, nothing points at it")
