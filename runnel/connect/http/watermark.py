"""The greatest value of a field that was seen: up to there an API was read.

APIs mean "at or after" by it, or "after". So the records of that very value are known by their hashes: one that comes
again is left out, and one that is new is not.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from runnel.connect.feed.protocol import State
from runnel.connect.http.record_extraction import look
from runnel.errors import Mistake, nearest
from runnel.names import shown

MOST_ALIKE = 10_000
_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def rank(value: Any) -> tuple[str, Any] | None:
    """Return by what values are compared: as numbers, as moments, or as texts; None of what has no order.

    >>> rank("2026-01-01T00:00:00.5Z") > rank("2026-01-01T01:00:00+01:00"), rank("10") > rank(9)
    (True, True)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float | Decimal):
        return ("number", Decimal(str(value))) if value == value else None
    if not isinstance(value, str) or not value.strip():
        return None
    if _NUMBER.match(value):
        return "number", Decimal(value)
    if _TIME.match(value):
        try:
            found = datetime.fromisoformat(value)
            return "time", found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        except ValueError:
            pass
    return "text", value


class Since:
    """How far an API was read, and the records of the last value."""

    def __init__(self, field: str, table: str, at: str, state: State, *, is_strict: bool) -> None:
        """`is_strict`: what is older than the last value was read before, and every record must have one."""
        self.field = field
        self._table = table
        self._at = at
        self._strict = is_strict
        if is_strict and state and state.get("by") != field:
            what = f"the rows of `{table}` were not read by `{field}`: what of the API is new can't be told"
            fix = "give `since` its field again, or a `key`; or declare another table"
            raise Mistake("HTTP_POSITION", what, at=at, fix=fix)
        known = state if state.get("by") == field else {}
        self.value: Any = known.get("since")
        self._start = self._rank = rank(self.value)
        self._known = frozenset(known.get("at", ()))
        self._alike: set[str] = set(self._known)

    def takes(self, record: Any, digest: str) -> bool:
        """Tell whether a record is new, and go on to its value."""
        value = look(record, self.field)[1]
        found = rank(value)
        if found is None:
            self._valueless(record)
            return True
        self._compare(found, value)
        if self._start is not None:
            if found == self._start and digest in self._known:
                return False
            if self._strict and found[1] < self._start[1]:
                return False
        if self._rank is None or found[1] > self._rank[1]:
            self._rank, self.value, self._alike = found, value, set()
        if found == self._rank:
            self._alike.add(digest)
        return True

    def state(self) -> dict[str, Any]:
        """Return the position."""
        if self.value is None:
            return {"by": self.field}
        if len(self._alike) > MOST_ALIKE:
            if self._strict:
                what = f"more than {MOST_ALIKE:,} records have the greatest `{self.field}`: which are new can't be told"
                raise Mistake("HTTP_SINCE", what, at=self._at, fix="choose a finer field, or give a `key`")
            self._alike.clear()
        value = str(self.value) if isinstance(self.value, Decimal) else self.value
        return {"by": self.field, "since": value, "at": sorted(self._alike)}

    def _valueless(self, record: Any) -> None:
        if not self._strict or not isinstance(record, Mapping):
            return
        close = nearest(self.field, [str(name) for name in record])
        what = f"a record has no `{self.field}`, by which new ones are told" + (f"; close: `{close}`" if close else "")
        fix = f"its fields: {', '.join(map(str, record))}; or give a `key`"
        raise Mistake("HTTP_SINCE", what, at=self._at, fix=fix)

    def _compare(self, found: tuple[str, Any], value: Any) -> None:
        if self._rank is not None and found[0] != self._rank[0]:
            what = f"`{self.field}` is {shown(self.value)} in one record and {shown(value)} in another: no order"
            raise Mistake("HTTP_SINCE", what, at=self._at, fix="choose a field that is always a number or a time")
