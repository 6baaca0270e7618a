"""Collect the files that make up a project's code: its settings, its flows, and what they import from it.

Only reads. Data, the lake, installed packages and what looks like a secret are left out.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from runnel.declare.loading.compiled_files import text_of
from runnel.declare.loading.module_importer import FLOWS
from runnel.declare.model.flow import Flow
from runnel.declare.settings import FILE
from runnel.lake.flow_state.code_store import Code
from runnel.plan.fingerprint.project_files import Project

MOST_BYTES = 1 << 20  # of one file: code is smaller, and what is larger is data
_SECRET = ("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keytab", "id_rsa*", "*secret*", "*credential*", "*password*")
_CODE = (".py", ".sql")
_KEY = r"[\w.\"'-]*(?:password|passwd|secret|token|access[_.-]?key|api[_.-]?key)[\w.\"'-]*"
_ASSIGNED = re.compile(rf"(\b{_KEY}\s*=\s*)(\"[^\"\n]*\"|'[^'\n]*')", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^\s:/@\"']*:)[^\s@\"']+@")


def code_of(flow: Flow, others: Iterable[str] = ()) -> Code:
    """Return a project's code. `others` are files that tasks reach and that were not imported when it was loaded."""
    root, project = flow.root, Project(flow.root)
    found = {path.name: _masked(path.read_bytes()) for path in _settings(root)}
    loaded = {name: file for file in flow.files if (name := project.file(file))}
    wanted = {name: root / name for name in others if project.file(str(root / name))}
    wanted |= {path.relative_to(root).as_posix(): path for path in _below(root / FLOWS)}
    for name, path in {**wanted, **{name: Path(file) for name, file in loaded.items()}}.items():
        with suppress(OSError):  # it went while we looked
            content = text_of(str(path)) if name in loaded else None
            found[name] = path.read_bytes() if content is None else content
    return Code(found)


def _settings(root: Path) -> Iterator[Path]:
    yield from (path for path in (root / FILE, *root.glob("runnel.*.toml")) if path.is_file())


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that may be code, or that code may read when it is imported."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        if any(part.startswith((".", "__pycache__")) for part in inside) or not path.is_file():
            continue
        is_secret = any(fnmatch(path.name.lower(), pattern) for pattern in _SECRET)
        if path.suffix in _CODE or (not is_secret and path.suffix != ".pyc" and path.stat().st_size <= MOST_BYTES):
            yield path


def _masked(content: bytes) -> bytes:
    """Return settings without what should not stand in them, but may: passwords in addresses, and keys.

    >>> _masked(b'catalog = "postgresql://ada:pw@db/lake"').decode()
    'catalog = "postgresql://ada:***@db/lake"'
    >>> _masked(b'storage = { "s3.secret-access-key" = "abc", region = "eu" }').decode()
    'storage = { "s3.secret-access-key" = "***", region = "eu" }'
    """
    text = _IN_ADDRESS.sub(r"\1***@", content.decode("utf-8", "replace"))
    return _ASSIGNED.sub(r'\1"***"', text).encode()
