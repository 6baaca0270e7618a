"""Files that were fetched from a system other than files, on this machine or where all machines see them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class FetchedFile:
    """A fetched file. `name` describes its contents to users, such as `clicks[0] from 100 to 199`."""

    path: Path
    name: str
    format: Literal["csv", "jsonl", "parquet"]


@dataclass(frozen=True)
class SharedFile:
    """A fetched file that all machines see: its `location` is a path, or the address of an object."""

    location: str
    name: str
    format: Literal["csv", "jsonl", "parquet"]
    bytes: int
