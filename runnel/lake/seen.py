"""What a source has given to its table, a file or all up to a state: a value that needs no database."""

from dataclasses import dataclass

STATE = "state"  # the path of the one row of a source that is no files


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
    state: str | None = None  # JSON, of a source that is no files
