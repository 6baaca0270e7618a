"""One measured figure, and whether it meets its target."""

import operator
import re
from dataclasses import dataclass, field

_TARGET = re.compile(r"(<=|>=)\s*([0-9.]+)")


@dataclass(frozen=True)
class Figure:
    """A ratio or a time. `target` reads like `>= 1.6` or `<= 100 ms`; without one the figure stands beside others."""

    name: str
    value: float
    unit: str = ""
    target: str | None = None
    details: dict[str, object] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        found = _TARGET.match(self.target or "")
        if not found:
            return True
        return {"<=": operator.le, ">=": operator.ge}[found[1]](self.value, float(found[2]))

    def verdict(self) -> str:
        return "" if self.target is None else "met" if self.ok else "MISSED"

    def shown(self) -> str:
        return (
            f"{self.value:.3g} {self.unit}".strip() if self.value < 1000 else f"{self.value:,.0f} {self.unit}".strip()
        )

    def line(self) -> str:
        return f"{self.name:<68} {self.shown():>12}  {self.target or '':<12} {self.verdict()}"
