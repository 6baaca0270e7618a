"""What a source has given to its table, a file or all up to a state: a value that needs no database."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

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


COLUMNS = ("path", "size", "modified_ns", "sha256", "identity", "files", "gone", "state")
"""The columns of the database that a value is made of."""


def stored(rows: "Iterable[tuple[Any, ...]]") -> Iterator[Seen]:
    """Yield the values of rows of `COLUMNS`.

    >>> list(stored([("a.csv", 1, 2, "d1", "i1", '["x.parquet"]', 0, None)]))[0].files
    ('x.parquet',)
    """
    found = list(rows)
    # Decoded in one go, which is three times as quick: there may be very many.
    files = json.loads(f"[{','.join(row[5] for row in found)}]")
    for (path, size, modified_ns, sha256, identity, _, gone, state), held in zip(found, files, strict=True):
        yield Seen(path, size, modified_ns, sha256, identity, tuple(held), bool(gone), state)
