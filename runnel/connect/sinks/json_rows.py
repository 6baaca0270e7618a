"""Encode rows as JSON: times in ISO form, decimals as strings, bytes in base64."""

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal


def to_json_value(value: object) -> object:
    """Return a value for JSON: times in ISO form, decimals as strings, bytes in base64."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def encode_json(value: object) -> str:
    """Return any value of a table as JSON, always the same for the same value."""
    return json.dumps(_replace_non_finite(value), default=to_json_value, ensure_ascii=False, separators=(",", ":"))


def _replace_non_finite(value: object) -> object:
    """Replace NaN and infinities, which JSON does not have, by strings."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _replace_non_finite(item) for name, item in value.items()}
    return [_replace_non_finite(item) for item in value] if isinstance(value, list | tuple) else value
