"""Parse how long commits, results and unneeded files are retained.

Pure: the caller passes in the clock and the commits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase

from runnel.declare.options import duration


def parse_seconds(text: str) -> int:
    """Return a duration in seconds.

    >>> parse_seconds("30 days"), parse_seconds("12 hours"), parse_seconds("0s")
    (2592000, 43200, 0)
    """
    return duration.parse_duration(text, code="RETENTION_DURATION")


@dataclass(frozen=True)
class Retention:
    """How long versions and files are kept after they have stopped being current.

    `branches` maps patterns of branch names to durations; the first that matches counts, else `commits`. A deleted
    branch is kept as long as main. `stream` applies to commits of streams if it is shorter. `failed` applies to results
    that are in no commit, such as those that a failed run left for its next attempt. `grace` is how long an unneeded
    file is left alone before it becomes a candidate, and again before a candidate is deleted: writes of other engines,
    and reads without a pin, must be shorter.
    """

    commits: str = "30 days"
    stream: str = "1 day"
    failed: str = "3 days"
    grace: str = "1 hour"
    branches: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.commits, self.stream, self.failed, self.grace, *self.branches.values()):
            parse_seconds(text)

    def find_commit_retention(self, branch: str, kind: str = "write") -> timedelta:
        """Return how long a commit of a branch is kept.

        >>> retention = Retention(branches={"try_*": "2 days"})
        >>> [retention.find_commit_retention(branch).days for branch in ("main", "try_a")]
        [30, 2]
        >>> retention.find_commit_retention("main", "stream").days
        1
        """
        texts = (text for pattern, text in self.branches.items() if fnmatchcase(branch, pattern))
        seconds = parse_seconds(next(texts, self.commits))
        return timedelta(seconds=min(seconds, parse_seconds(self.stream)) if kind == "stream" else seconds)

    @property
    def grace_seconds(self) -> int:
        """Return the grace period."""
        return parse_seconds(self.grace)
