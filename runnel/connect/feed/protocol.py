"""What a feed says and gives: values, and the protocol that every kind of source but files follows.

A feed has a state, its position: a small JSON object that its table's version carries. It is asked what is new since a
state, which must be cheap and needs no Spark, and then fetches that into files, which are read as any files are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from runnel.connect.load.quarantine import Aside

State = Mapping[str, Any]
Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how far, and of how many; raises where the run was cancelled."""


@dataclass(frozen=True)
class News:
    """What a feed has that its table lacks.

    `told` is for people, such as "1,204 new messages in 3 partitions", or why there is nothing. `until` is private to
    the feed: up to where it will fetch, so that what was announced is what is read. `identity` is what the rows are,
    where that can be said without reading them: the same text means the same rows. `replaces` tells that they are all
    rows, not more rows.
    """

    told: str
    is_empty: bool = False
    until: State | None = None
    rows: int | None = None
    bytes: int | None = None
    identity: str | None = None
    replaces: bool = False


@dataclass(frozen=True)
class Part:
    """A file that was fetched. `name` is how people know what is in it, such as `clicks[0] from 100 to 199`."""

    path: Path
    name: str
    format: Literal["csv", "jsonl", "parquet"]


@dataclass(frozen=True)
class Fetched:
    """What was fetched, and the state afterwards. The rows of all parts have the same columns.

    - `append`: the rows come to those that are there.
    - `replace`: they are all that there is now.
    - `upsert`: they take the place of rows with the same `key`, each key once; rows whose key is in the Parquet file
      `gone` go, and where there are Parquet files `present`, those whose key is in none of them. `is_all` tells that
      the rows which are there then are all that there is now.

    `bad` are rows that the feed itself could not make out, such as an Avro message that is none. `warnings` are for
    people, such as that messages expired. `oldest_at` is when, in seconds since 1970, the oldest row came to the system
    that it was fetched from, where that says so.
    """

    parts: tuple[Part, ...]
    state: State
    identity: str
    mode: Literal["append", "replace", "upsert"] = "append"
    key: tuple[str, ...] = ()
    gone: Path | None = None
    present: tuple[Path, ...] = ()
    is_all: bool = False
    bad: "tuple[Aside, ...]" = ()
    warnings: tuple[str, ...] = ()
    oldest_at: float | None = None


class Feed(Protocol):
    """A source that is no files."""

    def news(self, state: State | None) -> News:
        """Return what is new since a state; None is the beginning. Raises Unreachable, or a Mistake with the fix."""

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Write what is new into files below `folder`, which is empty and will be removed."""


class Held(Protocol):
    """The table that a feed fetches for, as it is now."""

    def rows_after(self, parts: tuple[Part, ...], key: tuple[str, ...]) -> int:
        """Return how many rows it has once those of Parquet files have taken the place of the ones with their keys."""

    def differing(self, parts: tuple[Part, ...], path: Path) -> bool:
        """Write the rows of Parquet files that it does not have into another; False, and no file, if it isn't there."""


@runtime_checkable
class Comparing(Protocol):
    """A feed that compares what it fetches with its table: to see which rows differ, or that some vanished."""

    def compare(self, held: Held) -> None:
        """Remember the table; called before `fetch`."""
