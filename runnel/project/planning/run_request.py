"""What a user asks to have planned or run; light, for a command hands it on before it imports anything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.plan.date_range import Days


@dataclass(frozen=True)
class Wish:
    """What a user asks to have planned or run."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    branch: str = "main"
    full_refresh: bool = False
    verify: bool = False  # compare every table with a full computation before publishing
    days: "Days | None" = None  # compute the slices of these days, and no sources, with everything downstream
    reads_sources: bool = True

    @classmethod
    def of(
        cls,
        select: str | Sequence[str],
        exclude: str | Sequence[str],
        branch: str,
        full_refresh: bool = False,
        verify: bool = False,
    ) -> "Wish":
        """Return a wish; one selection may be given by itself."""
        return cls(_texts(select), _texts(exclude), branch, full_refresh, verify)


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
