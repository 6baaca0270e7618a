"""Represent the position of a source: a file that was read, or a state; a value that needs no database."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from runnel.lake.iceberg.data_file_owners import (
    OwnedRow,
    is_shared,
    make_owner_prefix,
    read_file_id,
    read_origin,
    read_owner_prefix,
)

STATE_PATH = "state"  # the path of the single row of a source other than files
INCOMPLETE_KEY = "incomplete"  # key in the database for a file of which rows were skipped


@dataclass(frozen=True)
class ProcessedFile:
    """A source file that was read. `files` are the data files of the table that hold its rows.

    A file that disappeared under `removed="keep"` is kept unchanged; one whose rows were removed is `is_removed`. After
    a revert the table may hold rows of an earlier read: `all_owners` finds them, by the names of their data files.
    """

    path: str
    size: int
    modified_ns: int
    sha256: str
    identity: str  # identifies its rows: contents and read options
    files: tuple[str, ...]
    is_removed: bool = False
    state: str | None = None  # JSON, for a source other than files
    owners: tuple[str, ...] | None = None  # prefixes of its data files' names; None: derived from its path
    is_incomplete: bool = False  # bad rows were skipped, or the whole file

    @property
    def all_owners(self) -> tuple[str, ...]:
        """Return the name prefixes of all data files that hold rows of this file, in any version of its tables.

        New data files get the first prefix. A renamed file keeps its prefixes; for one that was renamed before prefixes
        were recorded, they come from the names of its data files.
        """
        if self.owners is not None:
            return self.owners
        recorded_owners = (owner for file in self.files if (owner := read_owner_prefix(file)))
        return tuple(dict.fromkeys((make_owner_prefix(self.path), *recorded_owners)))

    def as_removed(self) -> "ProcessedFile":
        """Return the entry for a path whose rows now belong to another path, or were removed for good."""
        return replace(self, files=(), is_removed=True, owners=())

    @property
    def stored_state(self) -> str | None:
        """Return the value of the database column `state`."""
        if self.path == STATE_PATH:
            return self.state
        details: dict[str, Any] = {}
        if self.owners is not None and self.owners != (make_owner_prefix(self.path),):
            details["owners"] = self.owners
        if self.is_incomplete:
            details[INCOMPLETE_KEY] = True
        return json.dumps(details) if details else self.state


@dataclass(frozen=True)
class SourceRecord:
    """Where a source's row came from: a source file, and which record of it, counted from 1.

    If the record is None, `unknown_reason` says why.
    """

    path: str
    record: int | None
    unknown_reason: str | None = None


def find_source_record(
    processed_files: "Iterable[ProcessedFile]", data_file: str, position: int, owned_row: OwnedRow | None
) -> SourceRecord | None:
    """Return the source file and record of the row at a position, counted from 0, of a data file; None if unknown.

    `owned_row` says whose row it is, if the data file tells. The rows of a source file are written in its order. The
    record is known if no rows of the source file were skipped or removed, and if all were written to one data file.
    """
    owner, number = (owned_row.owner, owned_row.number) if owned_row is not None else (None, position)
    origin = read_origin(owned_row.piece) if owned_row is not None else read_file_id(data_file)
    for processed_file in processed_files:
        is_recorded = origin in map(read_file_id, processed_file.files)
        if owner not in processed_file.all_owners and (is_shared(data_file) or not is_recorded):
            continue
        if not is_recorded:
            reason = "its rows were rewritten since"
        elif processed_file.is_incomplete:
            reason = "bad rows of the file were skipped"
        elif len(processed_file.files) > 1:
            reason = "the rows of the file are in several data files"
        elif number is None:
            reason = "other rows of the file were removed since"
        else:
            return SourceRecord(processed_file.path, number + 1)
        return SourceRecord(processed_file.path, None, reason)
    return None


COLUMNS = ("path", "size", "modified_ns", "sha256", "identity", "files", "gone", "state")
"""The database columns from which `parse_processed_files` builds a value."""


def parse_processed_files(rows: "Iterable[tuple[Any, ...]]") -> Iterator[ProcessedFile]:
    """Yield a value for each row of `COLUMNS`.

    >>> list(parse_processed_files([("a.csv", 1, 2, "d1", "i1", '["x.parquet"]', 0, None)]))[0].files
    ('x.parquet',)
    """
    row_list = list(rows)
    # Decoded at once, which is three times as fast: there may be very many rows.
    files_by_row = json.loads(f"[{','.join(row[5] for row in row_list)}]")
    for (path, size, modified_ns, sha256, identity, _, is_removed, state), data_files in zip(
        row_list, files_by_row, strict=True
    ):
        if path == STATE_PATH or state is None:
            yield ProcessedFile(path, size, modified_ns, sha256, identity, tuple(data_files), bool(is_removed), state)
        else:
            details = json.loads(state)
            owners = tuple(details["owners"]) if "owners" in details else None
            yield ProcessedFile(
                path,
                size,
                modified_ns,
                sha256,
                identity,
                tuple(data_files),
                bool(is_removed),
                owners=owners,
                is_incomplete=INCOMPLETE_KEY in details,
            )
