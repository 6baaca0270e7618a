"""What fsck finds, as values that the command line prints."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
RESTORE = "restore the file from a backup; or let the commits go: runnel gc after their retention has ended"


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be, or worth knowing.

    `commits` are the first and the last kept commit that need the file, or the one concerned.
    """

    severity: Severity
    code: str
    what: str
    file: str | None = None
    tables: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    fix: str | None = None


@dataclass(frozen=True)
class Report:
    """Everything that fsck found, errors first, and how much it looked at."""

    findings: tuple[Finding, ...]
    commits: int = 0
    versions: int = 0
    files: int = 0
    bytes: int = 0
    deep: bool = False
    orphans: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing is wrong; information is no harm."""
        return not any(finding.severity == "error" for finding in self.findings)


def sorted_findings(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the worst first."""
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: (order[finding.severity], finding.code, finding.file or "")))
