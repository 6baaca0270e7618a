"""The properties that Runnel sets on Iceberg tables, each named once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

KIND = "runnel.kind"  # "files" for a file table
INLINE_BYTES = "runnel.files.inline-bytes"  # of a file table: larger contents become blobs
MADE_BY = "runnel.made_by"  # "task": the flow computes the table, so nobody loads into it and merges compute it
KEY = "runnel.key"  # the columns that identify a row, separated by commas
SOURCE = "runnel.source"  # the kind of source that fills the table
UNDECLARED = "runnel.undeclared"  # columns that only the files of a source name
QUARANTINE_OF = "runnel.quarantine_of"  # of a quarantine table: the table whose rows it holds
LOG = "runnel.log"  # in a snapshot's summary: the version of the log that a table of changes follows from
LOG_CONTENT = "runnel.log_content"  # likewise: the content id of that version


def is_file_table(metadata: "TableMetadata") -> bool:
    """Return whether a table holds files."""
    return metadata.properties.get(KIND) == "files"
