"""The named steps of the lake at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

FORK_BEFORE_COMMIT = declare("fork.before_commit", "a fork's rows are written, its transaction is open")
PUBLISH_BEFORE = declare("publish.before", "everything is staged, the publishing transaction has not begun")
PUBLISH_ROWS = declare("publish.rows", "the catalog's rows are changed, the commit row is not yet written")
PUBLISH_BEFORE_COMMIT = declare("publish.before_commit", "all rows are written, the transaction is open")
PUBLISH_AFTER_COMMIT = declare("publish.after_commit", "the transaction is committed, the caller does not know yet")
WRITE_BYTES = declare("write.bytes", "some bytes of a file are about to be written")
WRITE_DATA = declare("write.data", "a data file is written")
WRITE_MANIFEST = declare("write.manifest", "a manifest is written")
WRITE_MANIFEST_LIST = declare("write.manifest_list", "the manifest list is written")
WRITE_METADATA = declare("write.metadata", "the metadata file is written, nothing points at it")
ADOPT_BEFORE_COMMIT = declare("adopt.before_commit", "another engine's change is recorded, the transaction is open")
