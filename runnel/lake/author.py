"""Who does something to the lake."""

import getpass
import os
from functools import lru_cache


@lru_cache(maxsize=1)
def default_author() -> str:
    """Return who commits are ascribed to: RUNNEL_AUTHOR, else the user of this machine."""
    try:
        return os.environ.get("RUNNEL_AUTHOR") or getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
