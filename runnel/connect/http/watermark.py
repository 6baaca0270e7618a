"""Track the greatest value of a field up to which an API was read.

Some APIs return records "at or after" that value, others only "after" it. So the hashes of the records with exactly
that value are remembered: a record that comes again is skipped, a new one is not.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from runnel.connect.feed.protocol import FeedState
from runnel.connect.http.record_extraction import find_path
from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

MAX_SAME_VALUE = 10_000
_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def rank_value(value: Any) -> tuple[str, Any] | None:
    """Return the sort key of a value, as a number, a time or a text; None for a value without order.

    >>> rank_value("2026-01-01T00:00:00.5Z") > rank_value("2026-01-01T01:00:00+01:00"), rank_value("10") > rank_value(9)
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
            moment = datetime.fromisoformat(value)
            return "time", moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        except ValueError:
            pass
    return "text", value


class HttpWatermark:
    """How far an API was read: the greatest value, and the hashes of the records that have it."""

    def __init__(self, field: str, table: str, at: str, state: FeedState, *, is_strict: bool) -> None:
        """With `is_strict`, records older than the last value are skipped, and every record must have a value."""
        self.field = field
        self._table = table
        self._at = at
        self._is_strict = is_strict
        if is_strict and state and state.get("by") != field:
            what = f"the rows of `{table}` were not read by `{field}`: Runnel can't tell what is new in the API"
            fix = "set the field of `since` again, or a `key`; or declare another table"
            raise Mistake("HTTP_POSITION", what, at=at, fix=fix)
        position = state if state.get("by") == field else {}
        self.value: Any = position.get("since")
        self._start_rank = self._rank = rank_value(self.value)
        self._previous_digests = frozenset(position.get("at", ()))
        self._greatest_digests: set[str] = set(self._previous_digests)

    def accept_record(self, record: Any, digest: str) -> bool:
        """Tell whether a record is new, and advance to its value."""
        value = find_path(record, self.field)[1]
        value_rank = rank_value(value)
        if value_rank is None:
            self._refuse_missing_value(record)
            return True
        self._refuse_mixed_types(value_rank, value)
        if self._start_rank is not None:
            if value_rank == self._start_rank and digest in self._previous_digests:
                return False
            if self._is_strict and value_rank[1] < self._start_rank[1]:
                return False
        if self._rank is None or value_rank[1] > self._rank[1]:
            self._rank, self.value, self._greatest_digests = value_rank, value, set()
        if value_rank == self._rank:
            self._greatest_digests.add(digest)
        return True

    def state(self) -> dict[str, Any]:
        """Return the position as the feed's state."""
        if self.value is None:
            return {"by": self.field}
        if len(self._greatest_digests) > MAX_SAME_VALUE:
            if self._is_strict:
                what = (
                    f"more than {MAX_SAME_VALUE:,} records have the greatest "
                    f"`{self.field}`: Runnel can't tell which are new"
                )
                raise Mistake("HTTP_SINCE", what, at=self._at, fix="choose a finer field, or set a `key`")
            self._greatest_digests.clear()
        value = str(self.value) if isinstance(self.value, Decimal) else self.value
        return {"by": self.field, "since": value, "at": sorted(self._greatest_digests)}

    def _refuse_missing_value(self, record: Any) -> None:
        if not self._is_strict or not isinstance(record, Mapping):
            return
        what = f"a record has no `{self.field}`, which shows what is new" + did_you_mean(
            self.field, [str(name) for name in record]
        )
        fix = f"its fields: {', '.join(map(str, record))}; or set a `key`"
        raise Mistake("HTTP_SINCE", what, at=self._at, fix=fix)

    def _refuse_mixed_types(self, value_rank: tuple[str, Any], value: Any) -> None:
        if self._rank is not None and value_rank[0] != self._rank[0]:
            what = (
                f"`{self.field}` is {quote_value(self.value)} in one record "
                f"and {quote_value(value)} in another: no order"
            )
            raise Mistake("HTTP_SINCE", what, at=self._at, fix="choose a field that is always a number or a time")
