"""All mistakes of a project, raised at once."""

import re
from collections.abc import Iterable

from runnel.errors import Mistake, RunnelError

_AT = re.compile(r"(?P<file>.+?):(?P<line>\d+)")


class ProjectMistakes(Mistake):
    """Every mistake of a project, in the order of files and lines; `code`, `what` and so on are the first one's."""

    def __init__(self, mistakes: Iterable[RunnelError]) -> None:
        unique = {(mistake.code, mistake.what, mistake.at): mistake for mistake in mistakes}
        self.all: tuple[RunnelError, ...] = tuple(sorted(unique.values(), key=_sort_key))
        first = self.all[0]
        super().__init__(first.code, first.what, at=first.at, fix=first.fix)

    def __str__(self) -> str:
        """Return the text of each mistake, then their number."""
        texts = [str(mistake) for mistake in self.all]
        return "\n\n".join(texts if len(texts) == 1 else [*texts, f"{len(texts)} mistakes"])


def _sort_key(mistake: RunnelError) -> tuple[bool, str, int]:
    match = _AT.match(mistake.at or "")
    return (mistake.at is None, match["file"], int(match["line"])) if match else (mistake.at is None, "", 0)
