"""Which token opens a service, where none is given."""

import json
import os
from pathlib import Path

from runnel.declare.settings import find_root
from runnel.errors import Mistake

VARIABLE = "RUNNEL_TOKEN"


def token_for(url: str, given: str | None) -> str:
    """Return the token that is given, that of the environment, or that of a `runnel up` of the project one is in."""
    found = given or os.environ.get(VARIABLE) or _left_by_up(url)
    if not found:
        fix = f"pass token=..., or set {VARIABLE}; `runnel token create NAME` makes one"
        raise Mistake("TOKEN_MISSING", f"{url} needs a token", fix=fix)
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Mistake("TOKEN_INVALID", "this is no token", fix="copy it whole, and nothing beside it")
    return found


def _left_by_up(url: str) -> str | None:
    try:
        home = find_root(Path()) / ".runnel"
        here = json.loads((home / "up.json").read_text(encoding="utf-8"))
        if here["url"].rstrip("/") == url:
            return (home / "token").read_text(encoding="utf-8").strip()
    except (Mistake, OSError, ValueError, KeyError, TypeError):
        return None
    return None
