"""The findings of fsck, as values that the command line prints."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
RESTORE = "restore the file from a backup; or run `runnel gc` once the retention of the commits has ended"


@dataclass(frozen=True)
class FsckFinding:
    """A problem, or a piece of information.

    `commits` are the first and the last retained commit that need the file, or the commit concerned.
    """

    severity: Severity
    code: str
    what: str
    file: str | None = None
    tables: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    fix: str | None = None


@dataclass(frozen=True)
class FsckReport:
    """All findings of fsck, errors first, and how much it checked."""

    findings: tuple[FsckFinding, ...]
    commits: int = 0
    versions: int = 0
    files: int = 0
    bytes: int = 0
    deep: bool = False
    orphans: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_clean(self) -> bool:
        """Return whether there is no error; warnings and information don't count."""
        return not any(finding.severity == "error" for finding in self.findings)


def sort_findings(findings: Iterable[FsckFinding]) -> tuple[FsckFinding, ...]:
    """Return the findings, the most severe first."""
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(findings, key=lambda finding: (order[finding.severity], finding.code, finding.file or "")))
