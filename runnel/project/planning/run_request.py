"""The request to plan or run a project. It imports little: a command builds it before it imports anything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.model.date_range import DateRange


@dataclass(frozen=True)
class RunRequest:
    """A request to plan or run a project."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    branch: str = "main"
    full_refresh: bool = False
    verify: bool = False  # compare every table with a full computation before publishing
    days: "DateRange | None" = None  # compute the slices of these days with everything downstream; read no sources
    reads_sources: bool = True

    @classmethod
    def create(
        cls,
        select: str | Sequence[str],
        exclude: str | Sequence[str],
        branch: str,
        full_refresh: bool = False,
        verify: bool = False,
    ) -> "RunRequest":
        """Return a request; a single selection may be given as a string."""
        return cls(_to_tuple(select), _to_tuple(exclude), branch, full_refresh, verify)


def _to_tuple(selection: str | Sequence[str]) -> tuple[str, ...]:
    return (selection,) if isinstance(selection, str) else tuple(selection)
