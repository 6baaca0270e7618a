"""Resolve secrets of alerts: the catalog holds their names, the service's environment their values."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.model.secret import Secret


def reveal_secret(value: Any) -> str:
    """Return a plain value as text, or the value of a secret; raise if the secret is not set here.

    >>> reveal_secret("plain")
    'plain'
    """
    return Secret(str(value["secret"])).reveal() if isinstance(value, Mapping) else str(value)
