"""What `runnel up` leaves in a project's folder so that other commands find it: where it answers, and a token.

A lock that its process holds tells whether it is there; a file that a crash left behind does not.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from runnel.errors import Conflict


@dataclass(frozen=True)
class Home:
    """A `runnel up` that is there."""

    pid: int
    url: str
    started_at: str
    catalog: str = ""  # which lake it serves: `catalog_of` its address


@contextmanager
def lived_in(folder: Path, home: Home) -> Iterator[None]:
    """Say that `runnel up` is there for as long as the block runs; raise where another is."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "up.lock").open("a") as lock:
        if not _locked(lock):
            found = _read(folder)
            who = f"process {found.pid}, {found.url}" if found else "another process"
            what = f"this project is up already: {who}"
            raise Conflict("UP_ALREADY", what, fix="`runnel down` stops it; `runnel status` says how it is")
        path = folder / "up.json"
        path.write_text(json.dumps(asdict(home)))
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def found(folder: Path) -> Home | None:
    """Return the `runnel up` that is there, or None."""
    path = folder / "up.lock"
    if not path.exists():
        return None
    with path.open("a") as lock:
        if _locked(lock):
            fcntl.flock(lock, fcntl.LOCK_UN)
            return None
    return _read(folder)


def catalog_of(address: str) -> str:
    """Return what tells catalogs apart by, of which nothing can be learned: the address may have a password."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def keep_token(folder: Path, secret: str) -> Path:
    """Write a token where only its owner can read it, and return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "token"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    return path


def token(folder: Path) -> str | None:
    """Return the token of this project, or None."""
    path = folder / "token"
    return path.read_text().strip() if path.is_file() else None


def _read(folder: Path) -> Home | None:
    try:
        return Home(**json.loads((folder / "up.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None  # it is just starting or ending


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
