"""Ask git which commit the project's code is, and whether it was changed since. Writes nothing."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

_PATIENCE_SECONDS = 5.0


class Git(TypedDict):
    """What git says about code."""

    commit: str
    dirty: bool


def git_of(root: Path, files: Iterable[str]) -> Git | None:
    """Return the commit of the folder's repository and whether some of the files differ from it.

    None where there is no repository, no commit yet or no git.
    """
    if not any((folder / ".git").exists() for folder in (root.absolute(), *root.absolute().parents)):
        return None
    names = frozenset(files)
    paths = sorted({path.partition("/")[0] if path.startswith("flows/") else path for path in names})
    line = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", *paths]
    try:
        done = subprocess.run(
            line,
            cwd=root,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _read(done.stdout, names) if done.returncode == 0 else None


def _read(text: str, files: frozenset[str]) -> Git | None:
    r"""Return what git's answer says. A file that git does not know counts where it is one of `files`.

    >>> _read("# branch.oid 1a2b\n# branch.head main\n1 .M N... flows/a.py\n", frozenset())
    {'commit': '1a2b', 'dirty': True}
    >>> _read("# branch.oid 1a2b\n? shop/flows/.env\n", frozenset({"flows/a.py"}))
    {'commit': '1a2b', 'dirty': False}
    """
    lines = text.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    unknown = [f"/{line[2:]}" for line in lines if line.startswith("? ")]
    is_changed = any(line[:1] not in "#?" for line in lines)
    is_new = any(path.endswith(f"/{file}") for path in unknown for file in files)
    return None if commit == "(initial)" else {"commit": commit, "dirty": is_changed or is_new}
