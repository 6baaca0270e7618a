"""Names of data files that tell which outside file their rows came from, whatever became of the table since. Pure."""

import hashlib
import re

_PREFIX = re.compile(r"([0-9a-f]{16}-)[0-9a-f]{32}")


def prefix(path: str) -> str:
    """Return how the names of the data files start that hold the rows of a source's file.

    >>> prefix("data/a.csv")
    '6079cfbce3af04bb-'
    """
    return hashlib.sha256(path.encode()).hexdigest()[:16] + "-"


def prefix_of(location: str) -> str | None:
    """Return the prefix that a data file's name has; None where its rows came another way or were rewritten."""
    found = _PREFIX.match(name_of(location))
    return found[1] if found else None


def name_of(location: str) -> str:
    """Return the name of a file, which stays when the warehouse moves.

    >>> name_of("file:///lake/ods/orders-1/data/x.parquet")
    'x.parquet'
    """
    return location.rpartition("/")[2]
