"""Determine the default author of commits."""

import getpass
import os
from functools import lru_cache


@lru_cache(maxsize=1)
def default_author() -> str:
    """Return the author of commits: RUNNEL_AUTHOR, else the operating system's user."""
    try:
        return os.environ.get("RUNNEL_AUTHOR") or getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
