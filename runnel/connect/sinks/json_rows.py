"""Rows as JSON: times in ISO form, decimals as strings, bytes in base64."""

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal


def jsonable(value: object) -> object:
    """Return a value for JSON: times in ISO form, decimals as strings, bytes in base64."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def as_json(value: object) -> str:
    """Return JSON of anything that a table holds, the same for the same value."""
    return json.dumps(_plain(value), default=jsonable, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    """Return a value without numbers that JSON does not have."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
