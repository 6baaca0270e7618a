"""Collect the files that make up a project's code: its settings, its flows, and what they import from it.

Only reads. Leaves out data, the lake, installed packages and files that look like secrets.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from runnel.declare.loading.compiled_files import cached_text
from runnel.declare.loading.module_importer import FLOWS
from runnel.declare.model.flow import Flow
from runnel.declare.settings import SETTINGS_FILE
from runnel.lake.flow_state.code_store import ProjectCode
from runnel.model.secret_mask import SECRET_WORDS
from runnel.plan.fingerprint.project_files import ProjectFiles

MOST_BYTES = 1 << 20  # of one file: larger files are data, not code
_SECRET = ("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keytab", "id_rsa*", "*secret*", "*credential*", "*password*")
_CODE = (".py", ".sql")
_KEY = rf"[\w.\"'-]*(?:{SECRET_WORDS})[\w.\"'-]*"
_ASSIGNED = re.compile(rf"(\b{_KEY}\s*=\s*)(\"[^\"\n]*\"|'[^'\n]*')", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^\s:/@\"']*:)[^\s@\"']+@")


def collect_code(flow: Flow, other_files: Iterable[str] = ()) -> ProjectCode:
    """Return a project's code. `other_files` are those that tasks use but that were not imported at load time."""
    root, project = flow.root, ProjectFiles(flow.root)
    contents = {path.name: _mask_settings(path.read_bytes()) for path in _list_settings_files(root)}
    loaded_files = {name: file for file in flow.files if (name := project.file(file))}
    code_paths = {name: root / name for name in other_files if project.file(str(root / name))}
    code_paths |= {path.relative_to(root).as_posix(): path for path in _list_code_files(root / FLOWS)}
    for name, path in {**code_paths, **{name: Path(file) for name, file in loaded_files.items()}}.items():
        with suppress(OSError):  # deleted meanwhile
            content = cached_text(str(path)) if name in loaded_files else None
            contents[name] = path.read_bytes() if content is None else content
    return ProjectCode(contents)


def _list_settings_files(root: Path) -> Iterator[Path]:
    yield from (path for path in (root / SETTINGS_FILE, *root.glob("runnel.*.toml")) if path.is_file())


def _list_code_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that may be code, or that code may read when it is imported."""
    for path in folder.rglob("*"):
        relative_parts = path.relative_to(folder).parts
        if any(part.startswith((".", "__pycache__")) for part in relative_parts) or not path.is_file():
            continue
        is_secret = any(fnmatch(path.name.lower(), pattern) for pattern in _SECRET)
        if path.suffix in _CODE or (not is_secret and path.suffix != ".pyc" and path.stat().st_size <= MOST_BYTES):
            yield path


def _mask_settings(content: bytes) -> bytes:
    """Return settings with passwords in addresses and secret keys masked.

    >>> _mask_settings(b'catalog = "postgresql://ada:pw@db/lake"').decode()
    'catalog = "postgresql://ada:***@db/lake"'
    >>> _mask_settings(b'storage = { "s3.secret-access-key" = "abc", region = "eu" }').decode()
    'storage = { "s3.secret-access-key" = "***", region = "eu" }'
    """
    text = _IN_ADDRESS.sub(r"\1***@", content.decode("utf-8", "replace"))
    return _ASSIGNED.sub(r'\1"***"', text).encode()
