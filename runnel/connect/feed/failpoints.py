"""The named steps of ingesting a feed at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

FETCHED = declare("feed.fetched", "what a feed has is in scratch files, nothing is read")
READ = declare("feed.read", "the data files of what a feed has are written, no version has them")
STAGED = declare("feed.staged", "a feed's version is staged, nothing points at it")
ALL = (FETCHED, READ, STAGED)
