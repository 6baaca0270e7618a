"""Encode in the name of a data file which source file its rows came from. Pure."""

import hashlib
import re

_PREFIX_PATTERN = re.compile(r"([0-9a-f]{16}-)[0-9a-f]{32}")


def make_owner_prefix(path: str) -> str:
    """Return the prefix for the names of data files that hold the rows of a source file.

    >>> make_owner_prefix("data/a.csv")
    '6079cfbce3af04bb-'
    """
    return hashlib.sha256(path.encode()).hexdigest()[:16] + "-"


def read_owner_prefix(location: str) -> str | None:
    """Return the owner prefix of a data file's name; None if its rows have no source file or were rewritten."""
    match = _PREFIX_PATTERN.match(read_file_name(location))
    return match[1] if match else None


def read_file_name(location: str) -> str:
    """Return the last part of a file's location, which does not change if the warehouse is moved.

    >>> read_file_name("file:///lake/ods/orders-1/data/x.parquet")
    'x.parquet'
    """
    return location.rpartition("/")[2]
