"""Measure processes over time: memory, threads, open files, connections; and judge whether they stay flat.

A series is cut into quarters. The first is warm-up; what the second needs in the middle is what the last may need, and
a little more: a tenth for memory, a few for what is counted. A middle value is not moved by a peak here and there, and
a leak that matters moves it: one megabyte for ten runs would be a hundred between the middles of a thousand.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

_SHARE = 1.1
_FEW = {"threads": 5, "files": 10, "connections": 3}
_MEGABYTES = 8  # what small processes may need more
_FULL = re.compile(r"Pause Full .*->(\d+)M\(")


@dataclass
class Series:
    """What was measured of one thing, in order."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)

    def quarter(self, number: int) -> float:
        """Return the middle value of a quarter, the first being 0."""
        size = len(self.values) / 4
        return median(self.values[round(number * size) : round((number + 1) * size)])

    @property
    def is_flat(self) -> bool:
        before, after = self.quarter(1), self.quarter(3)
        if self.unit == "MB":
            return after <= _SHARE * before + _MEGABYTES
        return after <= before + _FEW[self.unit]

    def __str__(self) -> str:
        quarters = " ".join(f"{self.quarter(number):.0f}" for number in range(4))
        return f"{self.name}: {quarters} {self.unit}{'' if self.is_flat else '  <- grows'}"


class Gauge:
    """All series of a trial, by name."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def note(self, name: str, unit: str, value: float) -> None:
        """Add one value."""
        self.series.setdefault(f"{name} {unit}", Series(name, unit)).values.append(value)

    def measure(self, name: str, pid: int) -> None:
        """Measure a process; one that has ended is left out."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            files = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            return
        found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "VmRSS" not in found:
            return  # it is just ending
        self.note(name, "MB", int(found["VmRSS"].split()[0]) / 1024)
        self.note(name, "threads", int(found["Threads"]))
        self.note(name, "files", len(files))
        self.note(f"{name} to the catalog", "connections", sum("catalog.db" in one for one in files))

    def read_heap(self, log: Path) -> None:
        """Take what lived in Java's heap after each full collection, of its log."""
        for found in _FULL.finditer(log.read_text(errors="replace") if log.exists() else ""):
            self.note("java heap", "MB", int(found[1]))

    def lines(self) -> list[str]:
        """Return all series, the middle values of their quarters."""
        return [str(one) for one in self.series.values() if len(one.values) >= 8]

    def growing(self) -> list[str]:
        """Return those that are not flat."""
        return [str(one) for one in self.series.values() if len(one.values) >= 8 and not one.is_flat]
