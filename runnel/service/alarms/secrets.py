"""Secrets of alerts: the catalog has their names, the environment of the service their values."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.model.secret import Secret


def revealed(value: Any) -> str:
    """Return a text, or the secret that stands for one; raises where that is not set here.

    >>> revealed("plain")
    'plain'
    """
    return Secret(str(value["secret"])).reveal() if isinstance(value, Mapping) else str(value)
