"""Record in the project's folder where `runnel up` listens, and a token, so that other commands find it.

The lock that its process holds tells whether it is running; a file left behind by a crash does not count.
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
from runnel.private_files import create_private_file, create_private_folder


@dataclass(frozen=True)
class ServiceInstance:
    """A running `runnel up`."""

    pid: int
    url: str
    started_at: str
    catalog: str = ""  # which lake it serves: `hash_catalog_url` of the catalog's URL


@contextmanager
def announce_instance(folder: Path, instance: ServiceInstance) -> Iterator[None]:
    """Announce `runnel up` for as long as the block runs; raise if another one is running."""
    create_private_folder(folder)
    create_private_file(folder / "up.lock")
    with (folder / "up.lock").open("a") as lock:
        if not _try_lock(lock):
            other = _read_instance(folder)
            owner = f"process {other.pid}, {other.url}" if other else "another process"
            what = f"this project is up already: {owner}"
            raise Conflict("UP_ALREADY", what, fix="`runnel down` stops it; `runnel status` shows its state")
        path = folder / "up.json"
        create_private_file(path)
        path.write_text(json.dumps(asdict(instance)))
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def find_instance(folder: Path) -> ServiceInstance | None:
    """Return the running `runnel up` of this project, or None."""
    path = folder / "up.lock"
    if not path.exists():
        return None
    with path.open("a") as lock:
        if _try_lock(lock):
            fcntl.flock(lock, fcntl.LOCK_UN)
            return None
    return _read_instance(folder)


def hash_catalog_url(url: str) -> str:
    """Return a hash that tells catalogs apart without revealing the URL, which may hold a password."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def save_token(folder: Path, secret: str) -> Path:
    """Write a token to a file that only its owner can read, and return the path."""
    create_private_folder(folder)
    path = folder / "token"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    return path


def read_token(folder: Path) -> str | None:
    """Return the token of this project, or None."""
    path = folder / "token"
    return path.read_text().strip() if path.is_file() else None


def _read_instance(folder: Path) -> ServiceInstance | None:
    try:
        return ServiceInstance(**json.loads((folder / "up.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None  # `runnel up` is just starting or ending


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
