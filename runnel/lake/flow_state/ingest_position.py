"""What a source has given to its table, a file or all up to a state: a value that needs no database."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from runnel.lake.iceberg.data_file_owners import prefix, prefix_of

STATE = "state"  # the path of the one row of a source that is no files
INCOMPLETE = "incomplete"  # what the database says of a file of which rows were left out


@dataclass(frozen=True)
class Seen:
    """A file of a source that was read. `files` are the data files of the table that hold its rows.

    A file that vanished under `removed="keep"` stays as it was; one whose rows were removed is `is_gone`. After a
    revert the table may hold the rows of an earlier reading: `owned` finds them, by the names of their data files.
    """

    path: str
    size: int
    modified_ns: int
    sha256: str
    identity: str  # what its rows are: contents and how they were read
    files: tuple[str, ...]
    is_gone: bool = False
    state: str | None = None  # JSON, of a source that is no files
    owners: tuple[str, ...] | None = None  # how the names of its data files start; None: as its path says
    is_incomplete: bool = False  # bad rows of it were left out, or all of it

    @property
    def owned(self) -> tuple[str, ...]:
        """Return how the names of all data files start that hold rows of this file, in any version of its tables.

        What is written for it starts with the first. A file keeps them under another name; one that was renamed before
        they were recorded is known by the data files that it had.
        """
        if self.owners is not None:
            return self.owners
        named = (found for file in self.files if (found := prefix_of(file)))
        return tuple(dict.fromkeys((prefix(self.path), *named)))

    def removed(self) -> "Seen":
        """Return what is recorded of a path whose rows belong to another path from now on, or are gone for good."""
        return replace(self, files=(), is_gone=True, owners=())

    @property
    def stored_state(self) -> str | None:
        """Return what the database keeps beside the other columns."""
        if self.path == STATE:
            return self.state
        details: dict[str, Any] = {}
        if self.owners is not None and self.owners != (prefix(self.path),):
            details["owners"] = self.owners
        if self.is_incomplete:
            details[INCOMPLETE] = True
        return json.dumps(details) if details else self.state


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
        if path == STATE or state is None:
            yield Seen(path, size, modified_ns, sha256, identity, tuple(held), bool(gone), state)
        else:
            details = json.loads(state)
            owners = tuple(details["owners"]) if "owners" in details else None
            yield Seen(
                path,
                size,
                modified_ns,
                sha256,
                identity,
                tuple(held),
                bool(gone),
                owners=owners,
                is_incomplete=INCOMPLETE in details,
            )
