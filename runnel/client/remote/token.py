"""Find the token for a service."""

import json
import os
from pathlib import Path

from runnel.declare.settings import find_root
from runnel.errors import Mistake

VARIABLE = "RUNNEL_TOKEN"


def find_token(url: str, explicit_token: str | None) -> str:
    """Return the explicit token, else that of the environment, else that of the current project's `runnel up`."""
    token = explicit_token or os.environ.get(VARIABLE) or _read_local_token(url)
    if not token:
        fix = f"pass token=..., or set {VARIABLE}; `runnel token create NAME` creates one"
        raise Mistake("TOKEN_MISSING", f"{url} needs a token", fix=fix)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Mistake("TOKEN_INVALID", "this is not a token", fix="copy the whole token, and nothing else")
    return token


def _read_local_token(url: str) -> str | None:
    try:
        home = find_root(Path()) / ".runnel"
        instance = json.loads((home / "up.json").read_text(encoding="utf-8"))
        if instance["url"].rstrip("/") == url:
            return (home / "token").read_text(encoding="utf-8").strip()
    except (Mistake, OSError, ValueError, KeyError, TypeError):
        return None
    return None
