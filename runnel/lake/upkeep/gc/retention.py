"""How long versions are kept: durations as users write them, and which commits they let go.

Pure: the caller passes in the clock and the commits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase

from runnel.declare.options import duration


def seconds_of(text: str) -> int:
    """Return a duration in seconds.

    >>> seconds_of("30 days"), seconds_of("12 hours"), seconds_of("0s")
    (2592000, 43200, 0)
    """
    return duration.seconds_of(text, code="RETENTION_DURATION")


@dataclass(frozen=True)
class Retention:
    """How long versions and files are kept after they have stopped being current.

    `branches` gives patterns of branch names durations of their own; the first that matches counts, else `commits`.
    A deleted branch is kept as long as main. `stream` is for commits of streams where that is shorter. `failed` is
    for results that no commit holds, such as those that a failed run left for its next try. `grace` is how long an
    unneeded file is left alone before it becomes a candidate, and again before a candidate is deleted: writes of
    other engines, and reads that hold no pin, must be shorter.
    """

    commits: str = "30 days"
    stream: str = "1 day"
    failed: str = "3 days"
    grace: str = "1 hour"
    branches: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.commits, self.stream, self.failed, self.grace, *self.branches.values()):
            seconds_of(text)

    def of(self, branch: str, kind: str = "write") -> timedelta:
        """Return how long a commit of a branch is kept.

        >>> kept = Retention(branches={"try_*": "2 days"})
        >>> kept.of("main").days, kept.of("try_a").days, kept.of("main", "stream").days
        (30, 2, 1)
        """
        texts = (text for pattern, text in self.branches.items() if fnmatchcase(branch, pattern))
        found = seconds_of(next(texts, self.commits))
        return timedelta(seconds=min(found, seconds_of(self.stream)) if kind == "stream" else found)

    @property
    def grace_seconds(self) -> int:
        """Return the grace period."""
        return seconds_of(self.grace)
