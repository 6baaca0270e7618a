"""The request to plan or run a project, and its JSON.

It imports little: a command builds it before it imports anything else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from runnel.model.date_range import DateRange

_NOT_OF_BACKFILLS = ("exclude", "full_refresh", "verify", "message")  # fields of `POST /runs`


@dataclass(frozen=True)
class RunRequest:
    """A request to plan or run a project. `overrides` take effect when the project is opened, before it is planned."""

    kind: ClassVar[str] = "run"

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    branch: str = "main"
    full_refresh: bool = False
    verify: bool = False  # compare every table with a full computation before publishing
    days: "DateRange | None" = None  # compute the slices of these days with everything downstream; read no sources
    reads_sources: bool = True
    message: str | None = None  # of the commit
    overrides: tuple[str, ...] = ()  # the values of parameters that `--set` sets, as `name=value`

    @classmethod
    def create(
        cls,
        select: str | Sequence[str],
        exclude: str | Sequence[str],
        branch: str,
        full_refresh: bool = False,
        verify: bool = False,
        *,
        message: str | None = None,
        overrides: Sequence[str] = (),
    ) -> "RunRequest":
        """Return a request; a single selection may be given as a string."""
        request = cls(_to_tuple(select), _to_tuple(exclude), branch, full_refresh, verify)
        return replace(request, message=message, overrides=tuple(overrides))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], branch: str) -> "RunRequest":
        """Return the request that `to_json` wrote; a field that an earlier version did not write has its default."""
        return cls(
            tuple(fields.get("select") or ()),
            tuple(fields.get("exclude") or ()),
            branch,
            bool(fields.get("full_refresh")),
            bool(fields.get("verify")),
            _parse_days(fields["days"]) if fields.get("days") else None,
            bool(fields.get("reads_sources", True)),
            fields.get("message"),
            tuple(fields.get("set") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores; the branch has a column of its own.

        >>> RunRequest(("dws.day",)).to_json()["select"]
        ['dws.day']
        """
        return {
            "select": list(self.select),
            "exclude": list(self.exclude),
            "full_refresh": self.full_refresh,
            "verify": self.verify,
            "days": _write_days(self.days) if self.days else None,
            "reads_sources": self.reads_sources,
            "message": self.message,
            "set": list(self.overrides),
        }

    @property
    def fits_body(self) -> bool:
        """Tell whether `POST /runs` can express it."""
        return self.days is None and self.reads_sources

    def to_body(self) -> dict[str, Any]:
        """Return the body of `POST /runs`, which has no days and always reads sources."""
        return {
            "select": list(self.select),
            "exclude": list(self.exclude),
            "branch": self.branch,
            "full_refresh": self.full_refresh,
            "verify": self.verify,
            "message": self.message,
            "set": list(self.overrides),
        }

    def to_backfill_body(self, days_per_chunk: int | None) -> dict[str, Any]:
        """Return the body of `POST /backfills`, which computes the days of the request in chunks.

        A field that is new in `to_body` is in this one, too, so that the service refuses what it can't honour.
        """
        assert self.days is not None
        body = {name: value for name, value in self.to_body().items() if name not in _NOT_OF_BACKFILLS}
        chunk = f"{days_per_chunk}d" if days_per_chunk else None
        return {**body, "from": str(self.days.first), "to": str(self.days.last), "chunk": chunk}

    def for_chunk(self, days: "DateRange") -> "RunRequest":
        """Return the request of one chunk of a backfill."""
        return replace(self, days=days, message=f"backfill {days}")


def _write_days(days: "DateRange") -> list[str | bool]:
    """Return the first and the last day, and False for a later chunk of a backfill."""
    return [str(days.first), str(days.last), *([] if days.is_start else [False])]


def _parse_days(days: Sequence[Any]) -> "DateRange":
    from datetime import date

    from runnel.model.date_range import DateRange

    return DateRange(date.fromisoformat(days[0]), date.fromisoformat(days[1]), is_start=len(days) < 3)


def _to_tuple(selection: str | Sequence[str]) -> tuple[str, ...]:
    return (selection,) if isinstance(selection, str) else tuple(str(text) for text in selection)
