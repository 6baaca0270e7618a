"""All mistakes of a project, raised at once."""

import re
from collections.abc import Iterable

from runnel.errors import Mistake, RunnelError

_AT = re.compile(r"(?P<file>.+?):(?P<line>\d+)")


class ProjectMistakes(Mistake):
    """Every mistake of a project, in the order of files and lines; its own parts are those of the first one."""

    def __init__(self, found: Iterable[RunnelError]) -> None:
        unique = {(mistake.code, mistake.what, mistake.at): mistake for mistake in found}
        self.all: tuple[RunnelError, ...] = tuple(sorted(unique.values(), key=_order))
        first = self.all[0]
        super().__init__(first.code, first.what, at=first.at, fix=first.fix)

    def __str__(self) -> str:
        """Return each mistake as a user reads it, then how many there are."""
        shown = [str(mistake) for mistake in self.all]
        return "\n\n".join(shown if len(shown) == 1 else [*shown, f"{len(shown)} mistakes"])


def _order(mistake: RunnelError) -> tuple[bool, str, int]:
    found = _AT.match(mistake.at or "")
    return (mistake.at is None, found["file"], int(found["line"])) if found else (mistake.at is None, "", 0)
