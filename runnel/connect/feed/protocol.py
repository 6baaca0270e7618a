"""The protocol of feeds, which every kind of source except files implements, and its values.

A feed has a state, its position: a small JSON object stored with its table's version. `find_changes` reports what is
new since a state; it must be cheap and needs no Spark. `fetch` writes the new rows into files, which are read as usual.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from runnel.model.progress import Progress

if TYPE_CHECKING:
    from runnel.connect.load.quarantine import QuarantinedRow

FeedState = Mapping[str, Any]


@dataclass(frozen=True)
class FeedChanges:
    """What a feed has that its table lacks.

    `summary` is for users, such as "1,204 new messages in 3 partitions", or why there is nothing. `until` is private to
    the feed: the end of what it will fetch, so that a run reads exactly what the plan announced. `identity` identifies
    the rows if that is possible without reading them: the same text means the same rows. `replaces` tells that the rows
    replace all existing ones.
    """

    summary: str
    is_empty: bool = False
    until: FeedState | None = None
    rows: int | None = None
    bytes: int | None = None
    identity: str | None = None
    replaces: bool = False


@dataclass(frozen=True)
class FetchedFile:
    """A fetched file. `name` describes its contents to users, such as `clicks[0] from 100 to 199`."""

    path: Path
    name: str
    format: Literal["csv", "jsonl", "parquet"]


@dataclass(frozen=True)
class FetchedRows:
    """The fetched rows, and the state afterwards. The rows of all parts have the same columns.

    - `append`: the rows are added to the existing ones.
    - `replace`: the rows replace all existing ones.
    - `upsert`: the rows replace those with the same `key`; each key occurs once. Rows whose key is in the Parquet file
      `removed_keys` are removed; if there are Parquet files `present_keys`, so are rows whose key is in none of them.
      `is_complete` tells that the table then has exactly the rows of the source.

    `bad_rows` are rows that the feed could not decode, such as an invalid Avro message. `warnings` are for users,
    such as that messages expired. `oldest_at` is when, in seconds since 1970, the oldest row arrived in the system from
    which it was fetched, if that is known.
    """

    parts: tuple[FetchedFile, ...]
    state: FeedState
    identity: str
    mode: Literal["append", "replace", "upsert"] = "append"
    key: tuple[str, ...] = ()
    removed_keys: Path | None = None
    present_keys: tuple[Path, ...] = ()
    is_complete: bool = False
    bad_rows: "tuple[QuarantinedRow, ...]" = ()
    warnings: tuple[str, ...] = ()
    oldest_at: float | None = None


class Feed(Protocol):
    """A source other than files."""

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:
        """Return what is new since a state; None is the beginning. Raises Unreachable, or a Mistake with the fix.

        A feed whose rows are numbered announces about `max_rows` at a time, if set; other feeds ignore it.
        """

    def fetch(
        self, state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Write the new rows into files below `folder`, which is empty and will be removed."""


class TargetTable(Protocol):
    """The current version of the table that a feed fills."""

    def count_rows_after(self, parts: tuple[FetchedFile, ...], key: tuple[str, ...]) -> int:
        """Return how many rows the table has after an upsert of the rows of Parquet files."""

    def write_differing_rows(self, parts: tuple[FetchedFile, ...], path: Path) -> bool:
        """Write the rows of Parquet files that the table lacks to `path`; False, and no file, if there is no table."""


@runtime_checkable
class ComparingFeed(Protocol):
    """A feed that compares the fetched rows with its table, to find rows that differ or were removed."""

    def compare(self, target: TargetTable) -> None:
        """Remember the table; called before `fetch`."""
