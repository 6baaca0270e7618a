"""A file that a source has given to its table: a value that needs no database."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """A file of a source that was read. `files` are the data files of the table that hold its rows.

    A file that vanished under `removed="keep"` stays as it was; one whose rows were removed is `is_gone`.
    """

    path: str
    size: int
    modified_ns: int
    sha256: str
    identity: str  # what its rows are: contents and how they were read
    files: tuple[str, ...]
    is_gone: bool = False
