"""Parse numbers of bytes as people write them: `256 MB`, `1.5 GiB`. Pure."""

import re

from runnel.errors import Mistake
from runnel.names import quote_value

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([kmgtp]?)(i?)b\s*\Z", re.ASCII | re.IGNORECASE)
FIX = "write a number and a unit: 256 MB, 1 GB, 512 KiB, 0 B"


def parse_bytes(text: object, code: str = "DECLARE_SIZE") -> int:
    """Return a size in bytes.

    >>> parse_bytes("256 MB"), parse_bytes("1.5GiB"), parse_bytes("0 B")
    (256000000, 1610612736, 0)
    """
    match = _SIZE.match(text) if isinstance(text, str) else None
    if match is None:
        raise Mistake(code, f"{quote_value(text)} is not a size", fix=FIX)
    count, power, is_binary = match.groups()
    return int(float(count) * (1024 if is_binary else 1000) ** _POWERS[power.lower()])
